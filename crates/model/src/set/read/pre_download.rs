//! Reading how images are pulled ahead of an update (STS-5, CS-20): the field, else the annotation that older
//! versions had in its place, else the default. An annotation that cannot be read counts as absent, as it always did.

use super::Reader;
use crate::int_or_percent::Share;
use crate::set::SetKind;
use crate::set::spec::{Area, PreDownload};
use flotilla_api::names;
use serde_json::Value;

const DEFAULT_PARALLELISM: Share = Share::Int(1);
/// What holds in effect; descriptions of the API have always said 600.
const DEFAULT_TIMEOUT_SECONDS: i32 = 300;
const DEFAULT_MIN_UPDATED_READY: Share = Share::Int(0);

impl Reader<'_> {
    pub(super) fn pre_download(&mut self) -> PreDownload {
        let mut settings = PreDownload {
            parallelism: DEFAULT_PARALLELISM,
            timeout_seconds: DEFAULT_TIMEOUT_SECONDS,
            min_updated_ready: DEFAULT_MIN_UPDATED_READY,
            also_for_recreation: false,
        };
        if self.kind == SetKind::Native {
            return settings;
        }
        let mut amount = |field, key| {
            let field = self.amount(field);
            field.or_else(|| amount_in(self.annotation(key)?))
        };
        let parallelism = amount("imagePreDownloadParallelism", names::PRE_DOWNLOAD_PARALLELISM);
        let timeout = amount("imagePreDownloadTimeoutSeconds", names::PRE_DOWNLOAD_TIMEOUT);
        let least = amount(
            "imagePreDownloadMinUpdatedReadyPods",
            names::PRE_DOWNLOAD_MIN_UPDATED_READY,
        );
        settings.parallelism = parallelism.unwrap_or(settings.parallelism);
        settings.min_updated_ready = least.unwrap_or(settings.min_updated_ready);
        if let Some(Share::Int(seconds)) = timeout {
            settings.timeout_seconds = seconds;
        }
        settings.also_for_recreation = self.word(names::PRE_DOWNLOAD_RECREATE, "true", "must be true");
        settings
    }

    fn amount(&mut self, field: &str) -> Option<Share> {
        let value = self.at(&format!("/updateStrategy/rollingUpdate/inPlaceUpdateStrategy/{field}"))?;
        let text = value.as_str();
        let parsed = Share::from_json(value).or_else(|| amount_in(text?));
        if parsed.is_none() {
            let path = format!("spec.updateStrategy.rollingUpdate.inPlaceUpdateStrategy.{field}");
            self.problem(
                path,
                value,
                "must be a number, 0 or more, or a percentage",
                Area::Nothing,
            );
        }
        parsed
    }
}

/// A number, or a percentage, as text.
fn amount_in(text: &str) -> Option<Share> {
    let number = text.parse::<i32>().map_or_else(|_| Value::from(text), Value::from);
    Share::from_json(&number)
}
