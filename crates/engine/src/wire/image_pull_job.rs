//! `ImagePullJob`s: nothing but who they are.

use super::meta::Metadata;
use flotilla_model::{ImagePullJobRecord, Interner};
use serde_json::Value;

/// The record of a job, or of its metadata alone.
pub(super) fn from_json(value: &Value, interner: &mut Interner) -> Result<ImagePullJobRecord, String> {
    let meta = Metadata::from_json(value)?.object.into_meta(interner, |_, _| true)?;
    Ok(ImagePullJobRecord { meta })
}
