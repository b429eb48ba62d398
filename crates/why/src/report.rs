//! What is told: what waits and why, what comes next, and who does it.

use crate::back::go_back;
use crate::causes::{self, Cause};
use crate::facts::{Facts, Index, time};
use crate::leader::Leader;
use crate::next::next_steps;
use crate::old::{self, is_owned_by};
use crate::question::{Held, Question};
use crate::set::LiveSet;
use crate::{pods, set, told};
use flotilla_api::names;
use flotilla_model::{GoBack, Keeper, Lines, Reader as _, SetKind, SetRecord, Timestamp, Wait, WaitCause, Whom};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Lines of waits and of next steps shown to people, at most. JSON has them all.
const LINES_SHOWN: usize = 20;
/// Names shown in one line, at most.
const NAMES_SHOWN: usize = 10;

/// What is known beside the set and what its pods rest on.
#[derive(Clone, Debug, Default)]
pub struct Beside {
    /// That its namespace is being deleted ([`crate::terminating_namespace`]).
    pub namespace: Option<Wait>,
    /// Who leads.
    pub leader: Leader,
    /// Objects that could not be read and are left out of all this, in sentences.
    pub unreadable: Vec<String>,
}

/// Everything that is told.
#[derive(Clone, Debug)]
pub struct Report {
    set: LiveSet,
    /// What waits, in the manager's words.
    pub waits: Vec<Wait>,
    facts: Facts,
    /// Pods of a revision that is not the template's, each with what keeps it so, if anything does.
    old_pods: BTreeMap<String, Option<Keeper>>,
    /// Pods that others wait for, and that are not there.
    missing: Vec<String>,
    /// Pods that advice may name, and that are not the set's own.
    of_others: Vec<String>,
    /// Which revision there is to go back to.
    go_back: GoBack,
    unreadable: Vec<String>,
    /// Claims that go when their pods end, in sentences.
    claims_that_go: Vec<String>,
    /// Pods of the set take their claims along when they are deleted.
    loses_claims: bool,
    /// What the manager would do next, in words.
    pub next: Vec<String>,
    leader: Leader,
    now: Timestamp,
}

/// Claims of a set that is being deleted, and are so themselves: a deletion in the foreground waits for them, and they for pods of others.
fn claims_on_their_way(live: &LiveSet, facts: &Facts) -> Vec<Wait> {
    if live.object["metadata"]["deletionTimestamp"].is_null() {
        return Vec::new();
    }
    let uid = &live.object["metadata"]["uid"];
    let own = facts.claims.iter().flatten().filter(|claim| is_owned_by(claim, uid));
    let wait = |claim: &Value| {
        Some(Wait {
            subject: claim["metadata"]["name"].as_str()?.to_owned(),
            cause: WaitCause::CLAIM_TERMINATING,
            since: Some(time(&claim["metadata"]["deletionTimestamp"])?),
        })
    };
    own.filter_map(wait).collect()
}

impl Report {
    /// What is told of the set, now that facts are known.
    pub fn of(question: &Question<'_>, held: Held, facts: Facts, beside: Beside) -> Report {
        let Question {
            set: live, cache, now, ..
        } = *question;
        let Held {
            decision,
            mut waits,
            terminating,
            creatable,
            ..
        } = held;
        let index = Index::of(&facts, now);
        waits.extend(pods::that_do_not_go(&terminating, &index));
        waits.extend(claims_on_their_way(live, &facts));
        pods::add_what_is_known(&mut waits, &index);
        set::add_refused_resizes(live, &mut waits);
        told::add_refused(live, &decision, &creatable, &mut waits);
        // What holds of the set as a whole comes first, as whatever its pods wait for may be due to it.
        let set = cache.set(live.kind, &live.key).cloned();
        let own = set::waits(live, set.as_deref(), &waits);
        waits.splice(0..0, beside.namespace.into_iter().chain(own));
        let claims = set.iter().flat_map(|set| cache.claims_of(set.as_owner()));
        let kept = claims.filter_map(|claim| claim.meta.labels.get(names::INSTANCE_ID_LABEL));
        Report {
            next: next_steps(&decision, &kept.collect()),
            old_pods: old::pods(live, &facts, set.as_deref()),
            missing: pods::missing(&waits, &index),
            of_others: pods::of_others(live, &waits, &index),
            loses_claims: set.as_deref().is_some_and(SetRecord::loses_claims),
            go_back: go_back(cache, live),
            leader: beside.leader,
            claims_that_go: set
                .iter()
                .flat_map(|set| pods::claims_that_go(cache, set, &waits))
                .collect(),
            unreadable: beside.unreadable,
            facts,
            set: live.clone(),
            waits,
            now,
        }
    }

    /// Nothing waits, and nothing is to be done.
    pub fn is_idle(&self) -> bool {
        self.waits.is_empty() && self.next.is_empty()
    }

    fn count(&self, field: &str) -> i64 {
        self.set
            .object
            .pointer(&format!("/status/{field}"))
            .and_then(Value::as_i64)
            .unwrap_or(0)
    }

    fn status_text(&self, field: &str) -> &str {
        self.set
            .object
            .pointer(&format!("/status/{field}"))
            .and_then(Value::as_str)
            .unwrap_or("none")
    }

    fn wanted(&self) -> i64 {
        self.set
            .object
            .pointer("/spec/replicas")
            .and_then(Value::as_i64)
            .unwrap_or(1)
    }

    /// For people, in lines.
    pub fn text(&self) -> String {
        let mut text = Lines::default();
        text.put(format_args!(
            "{} in namespace {}: {} wanted, {} ready, {} updated",
            self.set.display(),
            self.set.key.namespace,
            self.wanted(),
            self.count("readyReplicas"),
            self.count("updatedReplicas")
        ));
        let (from, to) = (self.status_text("currentRevision"), self.status_text("updateRevision"));
        if from != to {
            text.put(format_args!("rolling out: {from} -> {to}"));
        }
        self.waits_text(&mut text);
        for note in self.notes() {
            text.put(format_args!("note: {note}"));
        }
        self.next_text(&mut text);
        text.into_text()
    }

    /// What somebody asked for who may wait for it in vain.
    fn notes(&self) -> Vec<String> {
        let annotations = &self.set.object["metadata"]["annotations"];
        let is_on_delete = self.set.object["spec"]["updateStrategy"]["type"] == "OnDelete";
        let in_vain = (is_on_delete && annotations[names::UPDATE_TYPE] == "Recreate").then_some(&names::WITH_ON_DELETE);
        let left = self.leader.leaves(self.set.kind);
        let switches = names::NOT_YET
            .iter()
            .filter(|(key, _)| annotations[*key].is_string())
            .chain(in_vain)
            .map(|(key, what)| format!("the annotation {key} {what}"));
        left.into_iter()
            .chain(self.leader.unread.clone())
            .chain(switches)
            .chain(self.claims_that_go.iter().cloned())
            .chain(self.facts.unread.iter().cloned())
            .chain(self.unreadable.iter().cloned())
            .collect()
    }

    fn waits_text(&self, text: &mut Lines) {
        let causes = self.causes();
        if causes.is_empty() {
            text.put("nothing is waited for");
            return;
        }
        text.put("waiting:");
        for cause in causes.iter().take(LINES_SHOWN) {
            let since = cause
                .since
                .map_or_else(String::new, |since| format!(" (for {})", ago(self.now, since)));
            let subjects: Vec<String> = cause.subject.split(", ").map(str::to_owned).collect();
            text.put(format_args!("  {}: {}{since}", short(&subjects), cause.message));
            if !cause.holds_up.is_empty() {
                text.put(format_args!("      holds up: {}", short(&cause.holds_up)));
            }
            text.put(format_args!("      rule: {}", cause.rule));
            if let Some(advice) = &cause.advice {
                text.put(format_args!("      you can: {advice}"));
            }
        }
        more(text, causes.len());
    }

    /// For whom advice about a subject is.
    fn whom<'r>(&'r self, set: &'r str, facts: &Index<'r>, subject: &str) -> Whom<'r> {
        Whom {
            set,
            namespace: &self.set.key.namespace,
            is_former: self.old_pods.get(subject) == Some(&None),
            kept_by: self.old_pods.get(subject).copied().flatten(),
            go_back: self.go_back,
            is_paused: self.set.kind == SetKind::Native && self.set.paused_at().is_some(),
            loses_claims: self.loses_claims,
            claim_templates: self.set.claim_templates(),
            missing: &self.missing,
            of_others: &self.of_others,
            pod: facts.pod(subject),
        }
    }

    /// The causes, each once; where something comes next, first of all that nobody does it.
    pub fn causes(&self) -> Vec<Cause> {
        let set = self.set.display();
        let facts = Index::of(&self.facts, self.now);
        let mut causes = causes::causes(&self.waits, &facts, &|subject| self.whom(&set, &facts, subject));
        let nobody = self.leader.silence(self.now, self.set.kind).filter(|_| !self.is_idle());
        // What others have to do first does not wait for a manager.
        let place = if self.next.is_empty() { causes.len() } else { 0 };
        causes.splice(place..place, nobody);
        causes
    }

    fn next_text(&self, text: &mut Lines) {
        if !self.next.is_empty() {
            text.put("next:");
            self.next.iter().take(LINES_SHOWN).for_each(|line| {
                text.put(format_args!("  {line}"));
            });
            more(text, self.next.len());
        }
        match self.leader.silence(self.now, self.set.kind) {
            // Nobody misses it now.
            Some(cause) if self.is_idle() => {
                let advice = cause.advice.unwrap_or_default();
                text.put(format_args!("{} {}: {advice}", cause.subject, cause.message));
            }
            Some(_) => {}
            None => self
                .leader
                .nobody(self.set.kind)
                .filter(|_| !self.is_idle())
                .into_iter()
                .for_each(|line| text.put(line)),
        }
    }

    /// For programs.
    pub fn json(&self) -> Value {
        let set = self.set.display();
        let facts = Index::of(&self.facts, self.now);
        let cause = |c: &Cause| {
            json!({
                "subject": c.subject, "message": c.message, "rule": c.rule, "advice": c.advice, "holdsUp": c.holds_up,
                "since": c.since.map(|t| t.to_string()),
            })
        };
        let wait = |w: &Wait| {
            let mut json = serde_json::to_value(&w.cause).unwrap_or_default();
            json["subject"] = json!(w.subject);
            json["message"] = json!(w.cause.to_string());
            json["rule"] = json!(w.cause.rule());
            json["advice"] = json!(w.cause.advice(&w.subject, &self.whom(&set, &facts, &w.subject)));
            json["since"] = json!(w.since.map(|t| t.to_string()));
            json
        };
        json!({
            "set": self.set.display(),
            "namespace": &*self.set.key.namespace,
            "kind": self.set.kind.resource().api_version(),
            "replicas": self.wanted(),
            "readyReplicas": self.count("readyReplicas"),
            "updatedReplicas": self.count("updatedReplicas"),
            "currentRevision": self.status_text("currentRevision"),
            "updateRevision": self.status_text("updateRevision"),
            "causes": self.causes().iter().map(cause).collect::<Vec<_>>(),
            "waits": self.waits.iter().map(wait).collect::<Vec<_>>(),
            "notes": self.notes(),
            "next": self.next,
            "manager": self.leader.holder,
            "managerSilentSince": self.leader.silent_since.map(|t| t.to_string()),
        })
    }
}

fn more(text: &mut Lines, count: usize) {
    if count > LINES_SHOWN {
        text.put(format_args!("  … and {} more (-o json lists all)", count - LINES_SHOWN));
    }
}

/// Some names of many.
fn short(all: &[String]) -> String {
    let shown = all.iter().take(NAMES_SHOWN).cloned().collect::<Vec<_>>().join(", ");
    match all.len().saturating_sub(NAMES_SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// How long ago, in the two largest units.
pub fn ago(now: Timestamp, then: Timestamp) -> String {
    let seconds = now.since(then).as_secs();
    match seconds {
        0..=59 => format!("{seconds} s"),
        60..=3599 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..=86399 => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} d {} h", seconds / 86400, seconds % 86400 / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::without_made_up;
    use flotilla_model::{ObjectKey, WaitCause};

    fn report(waits: Vec<Wait>, next: Vec<String>, holder: Option<&str>) -> Report {
        let object = json!({
            "spec": {"replicas": 3},
            "status": {"readyReplicas": 2, "updatedReplicas": 1, "currentRevision": "web-a", "updateRevision": "web-b"},
        });
        let set = LiveSet {
            kind: SetKind::Advanced,
            key: ObjectKey::new("ns", "web"),
            object,
        };
        Report {
            set,
            waits,
            facts: Facts::default(),
            old_pods: BTreeMap::new(),
            missing: vec![],
            of_others: vec![],
            go_back: GoBack::ToTheOneBefore,
            unreadable: vec![],
            claims_that_go: vec![],
            loses_claims: false,
            next,
            leader: Leader {
                holder: holder.map(str::to_owned),
                ..Leader::default()
            },
            now: Timestamp::from_seconds(1000),
        }
    }

    #[test]
    fn people_read_what_is_waited_for_and_what_they_can_do() {
        let cause = WaitCause::UpdateBudget {
            budget: 1,
            used_by: vec!["web-0".into()],
        };
        let wait = Wait {
            subject: "web-2".into(),
            cause,
            since: Some(Timestamp::from_seconds(870)),
        };
        assert_eq!(
            report(vec![wait], vec!["delete pod web-2".into()], None).text(),
            "statefulset.apps.kruise.io/web in namespace ns: 3 wanted, 2 ready, 1 updated\n\
             rolling out: web-a -> web-b\n\
             waiting:\n  \
               web-2: budget of 1 unavailable used up by web-0 (for 2 min 10 s)\n      \
                   rule: updateStrategy.rollingUpdate.maxUnavailable\n      \
                   you can: wait, make those pods available, or raise maxUnavailable: kubectl edit statefulset.apps.kruise.io/web -n ns\n\
             next:\n  \
               delete pod web-2\n\
             no manager holds the lease: see which managers run, and with which --lease-namespace and --lease-name; if none does, start one: \
             flotilla manager\n"
        );
    }

    /// Nobody is made up who holds it, and nobody is said to be missing.
    #[test]
    fn a_lease_that_could_not_be_read_is_told_as_such() {
        let mut report = report(vec![], vec!["delete pod web-2".into()], None);
        report.leader = Leader::unread("leases \"flotilla\" is forbidden");
        let note = "whether a manager leads is not told: the lease could not be read: leases \"flotilla\" is forbidden";
        let text = report.text();
        assert!(text.contains(&format!("note: {note}\n")), "{text}");
        assert!(!text.contains("no manager holds"), "{text}");
        let json = report.json();
        assert_eq!((&json["manager"], &json["notes"]), (&Value::Null, &json!([note])));
    }

    #[test]
    fn a_manager_that_has_died_is_named_also_where_nothing_is_waited_for() {
        let mut report = report(vec![], vec![], Some("pod-a"));
        assert_eq!(report.json()["managerSilentSince"], Value::Null);
        assert!(!report.text().contains("pod-a"));
        report.leader.silent_since = Some(Timestamp::from_seconds(700));
        let text = report.text();
        let line =
            "\nmanager pod-a has not renewed the lease for 5 min 0 s, since 1970-01-01T00:11:40Z: start one, unless";
        assert!(text.contains(line), "{text}");
        let json = report.json();
        assert_eq!(json["manager"], "pod-a");
        assert_eq!(json["managerSilentSince"], "1970-01-01T00:11:40Z");
        assert_eq!(json["causes"], json!([]));
        // Where something is to be done it is the first cause; where others have to do it, the last.
        let wait = Wait {
            subject: "web-0".into(),
            cause: WaitCause::PodStarting,
            since: None,
        };
        report.waits = vec![wait];
        let subjects = |report: &Report| {
            report
                .causes()
                .into_iter()
                .map(|cause| cause.subject)
                .collect::<Vec<_>>()
        };
        assert_eq!(subjects(&report), ["web-0", "manager pod-a"]);
        report.next = vec!["create pod web-1".into()];
        assert_eq!(subjects(&report), ["manager pod-a", "web-0"]);
    }

    /// What pods, kubelets and webhooks say ends up in these lines.
    #[test]
    fn nobody_forges_a_line_by_a_message_of_theirs() {
        let forged = "gone\nnext:\n  delete pod db-0\u{1b}[2J\r";
        let cause = WaitCause::PodNotReady {
            reason: String::new(),
            message: forged.into(),
        };
        let wait = Wait {
            subject: "web-2".into(),
            cause,
            since: None,
        };
        let mut report = report(vec![wait], vec![], Some("me"));
        report.facts.unread = vec![forged.to_owned()];
        report.set.object["status"]["updateRevision"] = json!(forged);
        let text = report.text();
        let shown = "gone\\nnext:\\n  delete pod db-0\\u{1b}[2J\\r";
        assert_eq!(text.matches(shown).count(), 3, "{text}");
        assert!(
            !text.contains("\nnext:") && text.chars().all(|c| c == '\n' || !c.is_control()),
            "{text:?}"
        );
        assert!(report.json()["waits"][0]["message"].as_str().unwrap().contains(forged));
    }

    /// Whoever asks may make revisions, and the manager may not: only the set's condition tells.
    #[test]
    fn what_the_manager_was_told_is_a_cause() {
        use flotilla_engine::core::cache::Cache;
        use flotilla_engine::core::store::Source;
        use flotilla_engine::wire::Encoding;
        let said = "web: Forbidden: controllerrevisions.apps is forbidden: User \"system:serviceaccount:flotilla-system:flotilla\" cannot create";
        let condition = json!({"type": "FailedUpdatePod", "status": "True", "reason": "Forbidden", "message": said,
            "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let labels = json!({"app": "web"});
        let object = json!({
            "apiVersion": "apps.kruise.io/v1beta1", "kind": "StatefulSet",
            "metadata": {"name": "web", "namespace": "ns", "uid": "u", "generation": 1, "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "serviceName": "web",
                "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "app:v1"}]}}},
            "status": {"conditions": [condition]},
        });
        let mut cache = Cache::default();
        let kind = SetKind::Advanced;
        let read = cache
            .read(kind.resource(), Encoding::Json, &object.to_string().into())
            .expect("a set");
        drop(cache.apply(read, Source::List));
        let key = ObjectKey::new("ns", "web");
        let live = LiveSet { kind, key, object };
        let question = Question {
            set: &live,
            cache: &cache,
            clones: flotilla_controllers::cloneset::Defaults::default(),
            now: Timestamp::from_seconds(1_800_000_000),
        };
        let nothing = crate::trial::Tried::default();
        let decision = question.decide(&nothing).expect("a decision");
        let held = question.held(decision, &nothing);
        let report = Report::of(&question, held, Facts::default(), Beside::default());
        let causes = report.causes();
        let told = causes.iter().find(|cause| cause.subject == "web").expect("a cause");
        assert!(
            told.message
                .contains("when the manager last tried: controllerrevisions.apps is forbidden"),
            "{}",
            told.message
        );
    }

    #[test]
    fn switches_that_do_nothing_yet_are_named() {
        let mut report = report(vec![], vec![], None);
        assert_eq!(report.json()["notes"], json!([]));
        report.set.object["metadata"] = json!({"annotations": {"flotilla.rs/skip-unreachable": "true", "flotilla.rs/node-failure-policy": "racks"}});
        let text = report.text();
        for key in ["skip-unreachable", "node-failure-policy"] {
            let line = format!("note: the annotation flotilla.rs/{key} does nothing yet: pods on ");
            assert!(text.contains(&line), "{text}");
        }
        assert_eq!(report.json()["notes"].as_array().map(Vec::len), Some(2));
        report.set.object["metadata"] = json!({"annotations": {"flotilla.rs/update-type": "Recreate"}});
        assert_eq!(report.json()["notes"], json!([]));
        report.set.object["spec"]["updateStrategy"] = json!({"type": "OnDelete"});
        assert_eq!(
            report.json()["notes"],
            json!([
                "the annotation flotilla.rs/update-type does nothing with updateStrategy.type OnDelete: a pod is updated when somebody deletes it"
            ])
        );
    }

    #[test]
    fn programs_read_the_cause_as_data() {
        let cause = WaitCause::UpdateBudget {
            budget: 1,
            used_by: vec!["web-0".into()],
        };
        let wait = Wait {
            subject: "web-2".into(),
            cause,
            since: None,
        };
        let json = report(vec![wait], vec![], Some("me")).json();
        assert_eq!(json["waits"][0]["cause"], "UpdateBudget");
        assert_eq!(json["waits"][0]["usedBy"], json!(["web-0"]));
        assert_eq!(json["manager"], "me");
    }

    /// A deletion in the foreground waits for claims, and these for pods that others took out of the set.
    #[test]
    fn a_set_that_is_being_deleted_names_the_pods_that_hold_its_claims() {
        let deleted = "2026-01-01T00:00:00Z";
        let mut report = report(vec![], vec![], Some("me"));
        report.set.object["metadata"] = json!({"uid": "u", "deletionTimestamp": deleted});
        let claim = |name: &str, owner: &str, finalizers: Value| json!({"metadata": {"name": name, "deletionTimestamp": deleted, "ownerReferences": [{"uid": owner}], "finalizers": finalizers}});
        let pod = |name: &str, claim: &str, node: Value| {
            let volume = json!({"name": "data", "persistentVolumeClaim": {"claimName": claim}});
            json!({"metadata": {"name": name}, "spec": {"volumes": [volume], "nodeName": node}, "status": {"phase": "Succeeded"}})
        };
        let protected = json!(["kubernetes.io/pvc-protection"]);
        report.facts.claims = Some(vec![
            claim("data-web-0", "u", protected.clone()),
            claim(
                "data-web-1",
                "u",
                json!(["kubernetes.io/pvc-protection", "example.com/backup"]),
            ),
            claim("data-db-0", "other", protected),
        ]);
        report.facts.pods = Some(vec![
            pod("web-0", "data-web-0", json!("n")),
            pod("web-1", "data-web-1", Value::Null),
        ]);
        report.waits = claims_on_their_way(&report.set, &report.facts);
        let facts = Index::of(&report.facts, report.now);
        pods::add_what_is_known(&mut report.waits, &facts);
        let told = report.causes().into_iter();
        let told: Vec<String> = told
            .map(|cause| {
                format!(
                    "{} {}: {}",
                    cause.subject,
                    cause.message,
                    cause.advice.unwrap_or_default()
                )
            })
            .collect();
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(
            told[0].starts_with("data-web-0 the claim is being deleted, and used by pod web-0: "),
            "{told:?}"
        );
        assert!(told[0].ends_with(": kubectl delete pod web-0 -n ns"), "{told:?}");
        assert!(
            told[1].starts_with("data-web-1 the claim is being deleted, and held by finalizer example.com/backup: "),
            "{told:?}"
        );
        assert!(told[1].ends_with(": kubectl edit pvc data-web-1 -n ns"), "{told:?}");
        // One that is to go, and cannot on a node that is gone, is told of, too; one that is about to end is not.
        report.facts.nodes = Some(vec![]);
        let mut leaving = pod("web-0", "data-web-0", json!("n"));
        leaving["metadata"]["deletionTimestamp"] = json!(deleted);
        report.facts.pods = Some(vec![leaving]);
        let subjects = |report: &mut Report| {
            report.waits = claims_on_their_way(&report.set, &report.facts);
            pods::add_what_is_known(&mut report.waits, &Index::of(&report.facts, report.now));
            report
                .causes()
                .into_iter()
                .map(|cause| (cause.subject, cause.advice))
                .collect::<Vec<_>>()
        };
        let told = subjects(&mut report);
        let advice = told
            .iter()
            .find(|(subject, _)| subject == "node n")
            .and_then(|(_, advice)| advice.clone());
        let advice = advice.unwrap_or_else(|| panic!("{told:?}"));
        assert!(
            advice.ends_with("kubectl delete pod web-0 -n NAME --force --grace-period=0"),
            "{advice}"
        );
        report.facts.nodes = Some(vec![
            json!({"metadata": {"name": "n"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}),
        ]);
        report.now = "2025-12-31T23:59:59Z".parse().expect("a time");
        let told = subjects(&mut report);
        assert!(told.iter().all(|(subject, _)| subject.starts_with("data-")), "{told:?}");
    }

    /// What a quota says of ten pods that a CloneSet lacks is one cause, of no pod in particular.
    #[test]
    fn what_is_refused_under_made_up_names_is_told_once() {
        let refused = |name: &str, labels: Value| {
            let wait = Wait {
                subject: name.to_owned(),
                cause: WaitCause::Refused {
                    reason: "QuotaExceeded".to_owned(),
                    message: format!("pods \"{name}\" is forbidden: exceeded quota: small, used: pods=2"),
                    retry_at: None,
                },
                since: None,
            };
            without_made_up(wait, &json!({"metadata": {"name": name, "labels": labels}}))
        };
        let of_clone = |id: &str| refused(&format!("web-{id}"), json!({names::INSTANCE_ID_LABEL: id}));
        let first = of_clone("x7k2p");
        assert_eq!(first, of_clone("9fq4d"));
        assert_eq!(first.subject, "web-…");
        let text = report(vec![first], vec![], None).text();
        assert!(
            text.contains("web-…: ") && text.contains("exceeded quota: small"),
            "{text}"
        );
        assert!(!text.contains("x7k2p"), "{text}");
        assert_eq!(
            refused("web-1", json!({})).subject,
            "web-1",
            "that of a StatefulSet is its own"
        );
    }

    #[test]
    fn spans_in_two_units() {
        let at = Timestamp::from_seconds;
        for (seconds, text) in [(5, "5 s"), (65, "1 min 5 s"), (7260, "2 h 1 min"), (90_000, "1 d 1 h")] {
            assert_eq!(ago(at(seconds), at(0)), text);
        }
    }
}
