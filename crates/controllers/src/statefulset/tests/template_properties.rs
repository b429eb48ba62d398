//! Invariants about templates and claims: what makes a revision, what it keeps, whom claims belong to.

use super::cases::{Case, any_case};
use super::properties::config;
use super::world::World;
use crate::shared::adoption::controller_ref;
use crate::shared::claim::claim_name;
use crate::testing::{Cluster, advanced, brief, native};
use flotilla_model::template::{canonical, payload};
use flotilla_model::{Labels, Meta, ObjectKey, Resource, RevisionRecord, Timestamp, Uid};
use proptest::prelude::*;
use serde_json::{Value, json};

/// A pod template in one of the ways in which it may be written. The choice of words is `spelling`; the rest is what it means.
fn template(image: u8, cpu: u8, env: &[u8], future: &str, spelling: u16) -> Value {
    let says = |bit: u16| spelling & (1 << bit) != 0;
    let cpu = match (cpu, says(0), says(1)) {
        (0, _, _) => json!(null),
        (n, true, _) => json!(format!("{n}000m")),
        (n, false, true) => json!(n),
        (n, false, false) => json!(n.to_string()),
    };
    let mut container = json!({"name": "main", "image": format!("registry/app:{image}")});
    if !cpu.is_null() {
        container["resources"]["limits"]["cpu"] = cpu;
    } else if says(2) {
        container["resources"] = json!({});
    }
    if !env.is_empty() || says(3) {
        container["env"] = env
            .iter()
            .map(|e| json!({"name": format!("E{e}"), "value": "x"}))
            .collect();
    }
    let mut template = json!({"metadata": {"labels": {"app": "web"}}, "spec": {}});
    for (bit, field, default) in [
        (4, "imagePullPolicy", json!("IfNotPresent")),
        (5, "terminationMessagePath", json!("/dev/termination-log")),
        (6, "command", json!(null)),
    ] {
        if says(bit) {
            container[field] = default;
        }
    }
    for (bit, field, default) in [
        (7, "restartPolicy", json!("Always")),
        (8, "securityContext", json!({})),
        (9, "terminationGracePeriodSeconds", json!(30)),
        (10, "hostNetwork", json!(false)),
    ] {
        if says(bit) {
            template["spec"][field] = default;
        }
    }
    if says(11) {
        template["metadata"]["creationTimestamp"] = json!(null);
    }
    if !future.is_empty() {
        template["spec"]["fromTheFuture"] = json!({ future: future });
    }
    template["spec"]["containers"] = json!([container]);
    template
}

prop_compose! {
    /// What a template means: everything but its spelling.
    fn meaning()(image in 0..4_u8, cpu in 0..3_u8, env in prop::collection::vec(0..3_u8, 0..3), future in "[<>&a-c]{0,2}") -> (u8, u8, Vec<u8>, String) {
        (image, cpu, env, future)
    }
}

fn write((image, cpu, env, future): &(u8, u8, Vec<u8>, String), spelling: u16) -> Value {
    template(*image, *cpu, env, future, spelling)
}

fn revisions_in(cluster: &Cluster) -> Vec<String> {
    brief(&cluster.decide())
        .into_iter()
        .filter(|c| c.contains("revision"))
        .collect()
}

proptest! {
    #![proptest_config(config())]

    /// STS-I7: another spelling makes no revision; a template that is stored is used again, raised above the others if it is not
    /// the newest; its pods are up to date at once. A template that means something else does make one.
    #[test]
    fn sts_i7_only_another_meaning_makes_a_revision(
        wanted in meaning(), other in meaning(), spellings in (0..4096_u16, 0..4096_u16), advanced_kind: bool, newest: bool,
    ) {
        let set = if advanced_kind { advanced(2) } else { native(2) };
        let set = set.no_revisions().spec("/template", write(&wanted, spellings.0)).pods(0..2, "stored");
        let stored = set.clone().revision_of("stored", if newest { 9 } else { 3 }, &write(&wanted, spellings.1));
        let stored = stored.revision("another", 5, "nothing like it").status("/currentRevision", json!("stored"));
        let expected: &[&str] = if newest { &[] } else { &["~revision stored"] };
        prop_assert_eq!(brief(&stored.decide()), expected, "no pod is touched either");
        let different = set.revision_of("stored", 9, &write(&other, spellings.1));
        let made = revisions_in(&different).contains(&"+revision".to_owned());
        prop_assert_eq!(made, wanted != other, "{:?} against {:?}", wanted, other);
    }

    /// STS-I11, as far as one version goes: what is stored in a revision comes back whole, whatever it holds.
    #[test]
    fn sts_i11_a_template_comes_back_whole_from_its_revision(means in meaning(), spelling in 0..4096_u16, odd in "\\PC{0,6}") {
        let mut template = write(&means, spelling);
        template["spec"]["odd"] = json!({odd.clone(): [odd, null, 1.5, {"deep": {}}]});
        let text = canonical(&payload(&template));
        let data: Value = serde_json::from_str(&text).map_err(|e| TestCaseError::fail(e.to_string()))?;
        let meta = Meta {
            key: ObjectKey::new("ns", "r"), uid: Uid::new("r"), resource_version: 1, created: Timestamp::default(),
            deleted: None, labels: Labels::default(), owners: None,
        };
        let record = RevisionRecord::new(meta, 1, &data, None);
        let kept = record.template.map(|kept| kept.tree());
        prop_assert_eq!(kept.as_deref(), Some(&template));
    }

    /// STS-I6: no claim is deleted (the world refuses it), and after each pass the owners of every pod's claims are those of the
    /// table, whatever is scaled and reserved.
    #[test]
    fn sts_i6_owners_of_claims_follow_the_policy(
        case in any_case(), policy in (any::<bool>(), any::<bool>()), then in (0..8_i32, prop::collection::vec(0..10_i64, 0..3)),
    ) {
        let case = Case { pods: Vec::new(), rolled_out: true, ..case };
        let word = |delete: bool| if delete { "Delete" } else { "Retain" };
        let cluster = case.cluster().claim_templates(&["data"]);
        let cluster = cluster.spec("/persistentVolumeClaimRetentionPolicy", json!({"whenScaled": word(policy.0), "whenDeleted": word(policy.1)}));
        let mut world = World::new(cluster, case.seed);
        for step in 0..10 {
            if step == 5 {
                world.edit("/replicas", json!(then.0));
                world.edit("/reserveOrdinals", json!(then.1));
            }
            let seen = world.clone();
            world.pass().map_err(TestCaseError::fail)?;
            owners_are_right(&seen, &world, policy)?;
            world.go_on();
            world.collect_garbage();
        }
    }
}

/// Whether the claims of pods that a pass saw belong to whom table STS-1.4.4 says.
fn owners_are_right(seen: &World, after: &World, (with_pod, with_set): (bool, bool)) -> Result<(), TestCaseError> {
    let set = seen.set();
    let wanted = set.spec.ordinals();
    let set_ref = controller_ref(set.kind.resource(), set.name(), &set.meta.uid);
    for (ordinal, pod) in seen.cluster.members() {
        let Some(claim) = after
            .cluster
            .claims
            .get(&claim_name(&set.spec.claim_templates[0], pod.name()))
        else {
            continue;
        };
        let now = after.cluster.pods.get(pod.name());
        let stays = now.is_some_and(|now| now.meta.uid == pod.meta.uid && !now.is_terminating());
        // Only a pod that goes takes its claims along: one whose turn has not come has none.
        let goes_with_pod = !wanted.contains(ordinal) && with_pod && !stays;
        let expected = match (goes_with_pod, with_set) {
            (true, _) => vec![controller_ref(Resource::Pods, pod.name(), &pod.meta.uid)],
            (false, true) => vec![set_ref.clone()],
            (false, false) => Vec::new(),
        };
        prop_assert_eq!(claim.meta.owners(), &expected[..], "claim of {}", pod.name());
    }
    Ok(())
}
