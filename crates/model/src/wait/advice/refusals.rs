//! What the user can do about what the API server refused.

use super::{Failure, Refusal, WaitCause, Whom};
use crate::lines::in_command;
use serde_json::Value;

/// All admission webhooks, by which the one that is named can be found; without anything that a shell reads otherwise.
const LIST_WEBHOOKS: &str = "kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations -o yaml";

impl WaitCause {
    /// How a message begins that the manager alone was told. Whoever refuses, and whoever names things, may have written what follows: nothing but
    /// the reason beside it is read for an advice.
    pub const LAST_TRIED: &str = "when the manager last tried: ";

    /// What the user can do about a request, or a revision, that the API server refused.
    pub(super) fn advice_on_refusal(&self, whom: &Whom<'_>) -> Option<String> {
        let (reason, message, template) = match self {
            WaitCause::Refused { reason, message, .. } => {
                (reason, message, format!("correct the template: {}", whom.edit()))
            }
            WaitCause::RevisionRefused { reason, message, .. } => (
                reason,
                message,
                format!("correct the template, or {}", whom.roll_back()),
            ),
            _ => return None,
        };
        if let Some(refusal) = Refusal::of(message) {
            return Some(whom.settle(refusal, &template));
        }
        Some(match reason.as_str() {
            Failure::QUOTA_EXCEEDED => whom.make_room(),
            "BadRequest" => format!("the API server cannot read the pod; {template}"),
            // Whether it is the template that was refused then, or a change or a deletion, nobody knows.
            Failure::INVALID if !message.starts_with(WaitCause::LAST_TRIED) => {
                whom.correct_claims(message).unwrap_or(template)
            }
            _ => format!("see what the message asks for; if a webhook says so, whose it is: {LIST_WEBHOOKS}"),
        })
    }
}

impl Whom<'_> {
    /// What ends a refusal: what the refused object can do about it comes last, as that is what whoever owns the set can do alone.
    fn settle(&self, refusal: Refusal<'_>, template: &str) -> String {
        let namespace = self.namespace();
        match refusal {
            Refusal::Webhook(name) => {
                let name = in_command(name);
                format!(
                    "see what admission webhook {name} asks for, and whoever owns it: {LIST_WEBHOOKS}; or {template}"
                )
            }
            Refusal::Policy(name) => {
                let name = in_command(name);
                format!(
                    "see what the policy asks for, and whoever owns it: kubectl get validatingadmissionpolicy {name} -o yaml; or {template}"
                )
            }
            Refusal::Quota => self.make_room(),
            Refusal::QuotaAsksFor => {
                format!(
                    "a quota counts what the pod does not say; see what: kubectl describe resourcequota -n {namespace}; then {template}"
                )
            }
            Refusal::LimitRange => {
                format!("see what the namespace allows: kubectl describe limitrange -n {namespace}; then {template}")
            }
            Refusal::PodSecurity => format!(
                "see which level of pod security the namespace enforces: kubectl get namespace {namespace} --show-labels; then {template}"
            ),
            Refusal::NoServiceAccount(name) => format!(
                "create the service account that the template names: kubectl create serviceaccount {} -n {namespace}",
                in_command(name)
            ),
            Refusal::NoClass(kind, name) => self.provide_class(kind, in_command(name)),
            Refusal::NodeTooSmall => format!("ask for what the node has: {}", self.edit()),
            Refusal::NoRight(right) => format!(
                "give whoever asked that right, such as by `flotilla install` anew if it is the manager; see whether it has it: {}",
                right.question(self.namespace)
            ),
        }
    }

    fn make_room(&self) -> String {
        format!(
            "raise the namespace's ResourceQuota, or free some of it: kubectl describe resourcequota -n {}",
            self.namespace()
        )
    }

    /// Making the class that a template names, or naming one that there is.
    fn provide_class(&self, kind: &str, name: &str) -> String {
        let create = match kind {
            "PriorityClass" => {
                format!("create it, with the value that fits: kubectl create priorityclass {name} --value=0; ")
            }
            _ => format!("create {kind} {name}; "),
        };
        format!(
            "{create}or let the template name one of those that there are (kubectl get {}): {}",
            kind.to_ascii_lowercase(),
            self.edit()
        )
    }

    /// What to correct where the API server refused a pod for a volume that is, or was, made of a claim template: the pod template, and the
    /// revisions to go back to, are not to blame.
    fn correct_claims(&self, refusal: &str) -> Option<String> {
        let is_named = |name: &&str| refusal.contains(&format!("{name:?}"));
        let templates = self.claim_templates.iter();
        let mut names = templates.filter_map(|t| t.pointer("/metadata/name").and_then(Value::as_str));
        let mut uses = ["volumeMounts[", "volumeDevices["].iter();
        if refusal.contains("spec.volumes[") {
            let name = names.find(is_named)?;
            return Some(format!(
                "rename the claim template {name:?}, or take it away: {}",
                self.edit()
            ));
        }
        let is_missing = refusal.contains("Not found: ") && uses.any(|list| refusal.contains(list));
        is_missing.then(|| {
            let edit = self.edit();
            format!("add the claim template, or the volume, that a container uses, or let it use none: {edit}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn r_31_what_is_to_be_corrected_is_what_the_refused_field_was_made_of() {
        let templates = [
            json!({"metadata": {"name": "data"}}),
            json!({"metadata": {"name": "logs.v1"}}),
        ];
        let whom = Whom {
            claim_templates: &templates,
            ..Whom::of("statefulset.apps.kruise.io/web", "shop")
        };
        for (field, expected) in [
            (
                "spec.volumes[1].name: Invalid value: \"logs.v1\": must not contain dots",
                "rename the claim template \"logs.v1\"",
            ),
            (
                "spec.volumes[0].name: Invalid value: \"a.b\": must not contain dots",
                "correct the template, or roll back",
            ),
            (
                "spec.containers[0].volumeMounts[0].name: Not found: \"spool\"",
                "add the claim template",
            ),
            (
                "spec.containers[0].volumeDevices[0].name: Not found: \"spool\"",
                "add the claim template",
            ),
            (
                "spec.containers[0].image: Required value",
                "correct the template, or roll back",
            ),
        ] {
            let message = format!("Pod \"web-2\" is invalid: {field}");
            let cause = WaitCause::of_refused_trial("Invalid".to_owned(), message, None);
            let advice = cause.advice("web-abc", &whom).expect("advice");
            assert!(advice.starts_with(expected), "{field}: {advice}");
        }
    }

    /// It says so with the reason Invalid, and the template may be as valid as any.
    #[test]
    fn a_policy_that_denies_pods_is_named() {
        const DENIED: &str =
            "ValidatingAdmissionPolicy 'two-owners' with binding 'everywhere' denied request: name an owner";
        let whom = Whom::of("statefulset.apps/web", "shop");
        let message = format!("pods \"web-2\" is forbidden: {DENIED}");
        let retry_at = None;
        let refused = WaitCause::Refused {
            reason: "Invalid".into(),
            message: message.clone(),
            retry_at,
        };
        let revision = WaitCause::RevisionRefused {
            reason: "Invalid".into(),
            message,
            retry_at,
        };
        for (cause, ending) in [
            (refused, "kubectl edit statefulset.apps/web -n shop"),
            (revision, "flotilla rollout undo statefulset.apps/web -n shop"),
        ] {
            let advice = cause.advice("web-2", &whom).expect("advice");
            let policy = ": kubectl get validatingadmissionpolicy two-owners -o yaml; or ";
            assert!(advice.contains(policy) && advice.ends_with(ending), "{advice}");
        }
    }
}
