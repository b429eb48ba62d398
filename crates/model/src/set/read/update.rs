//! Reading how pods are replaced: the type that is declared, and the annotation that makes a rolling update one that takes all pods
//! (STS-2.6).

use super::Reader;
use crate::set::spec::{Area, UpdateKind};
use flotilla_api::names;
use serde_json::Value;

/// Where the type stands below `spec`.
const TYPE: &str = "/updateStrategy/type";
/// The one value of [`names::UPDATE_TYPE`].
const RECREATE: &str = "Recreate";

impl Reader<'_> {
    /// How pods are replaced. The annotation counts only where a rolling update is declared: whoever declares OnDelete deletes the pods, and
    /// loses none by a switch.
    pub(super) fn update_kind(&mut self) -> UpdateKind {
        let declared = self.declared_update();
        match self.annotation(names::UPDATE_TYPE) {
            Some(RECREATE) if declared == UpdateKind::RollingUpdate => UpdateKind::Recreate,
            None | Some(RECREATE) => declared,
            Some(value) => {
                self.switch_problem(names::UPDATE_TYPE, value, "must be Recreate");
                declared
            }
        }
    }

    fn declared_update(&mut self) -> UpdateKind {
        let Some(value) = self.at(TYPE) else {
            return UpdateKind::RollingUpdate;
        };
        match value.as_str() {
            Some("RollingUpdate" | "") => UpdateKind::RollingUpdate,
            Some("OnDelete") => UpdateKind::OnDelete,
            Some("Recreate") => UpdateKind::Recreate,
            _ => {
                self.problem(
                    "spec.updateStrategy.type",
                    value,
                    "must be RollingUpdate or OnDelete",
                    Area::Update,
                );
                UpdateKind::OnDelete
            }
        }
    }

    /// Switches that do nothing, each with what happens instead.
    pub(super) fn idle(&self) -> Vec<&'static (&'static str, &'static str)> {
        let is_idle = |(key, _): &&(&str, &str)| self.annotation(key).is_some();
        let is_on_delete = self.at(TYPE).and_then(Value::as_str) == Some("OnDelete");
        let is_in_vain = is_on_delete && self.annotation(names::UPDATE_TYPE) == Some(RECREATE);
        let in_vain = is_in_vain.then_some(&names::WITH_ON_DELETE);
        names::NOT_YET.iter().filter(is_idle).chain(in_vain).collect()
    }
}
