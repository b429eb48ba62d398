//! What a pass costs is in proportion to its set: no step looks at all pods, or all claims, for each of them.

use crate::shared::inplace::eligible;
use crate::testing::{Cluster, NOW, PodFixture, advanced, claim, clones, container_status, native, pod, template};
use flotilla_api::names;
use flotilla_model::records::Phase;
use flotilla_model::{RecordedClaims, SetKind, Uid};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Map, Value, json};
use std::hint::black_box;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// A set, and one of four times its size.
const SIZES: [usize; 2] = [4_000, 16_000];
/// A template with so many of something, and one with four times as many.
const TEMPLATE_SIZES: [usize; 2] = [1_000, 4_000];
/// What is in proportion costs four times as much, more where caches of the processor get too small; the square of it sixteen times.
const MOST: f64 = 10.0;
/// How often both are looked at before the fastest of each are said to be out of proportion: others may be using the machine.
const LOOKS: usize = 5;

type Change = fn(PodFixture) -> PodFixture;

/// Old pods of a CloneSet with their claims.
fn clone_pods(mut cluster: Cluster, count: usize, change: Change) -> Cluster {
    for n in 0..count {
        let id = format!("{n:05}");
        let fixture = pod(&format!("web-{id}"))
            .revision("web-old")
            .label(names::INSTANCE_ID_LABEL, &id)
            .label(names::TEMPLATE_HASH_LABEL, "old");
        cluster = cluster.pod(change(running_v1(fixture)));
    }
    clone_claims(cluster, count)
}

fn clone_claims(mut cluster: Cluster, count: usize) -> Cluster {
    for n in 0..count {
        let id = format!("{n:05}");
        cluster = cluster.claim(claim(&format!("data-web-{id}")).of_clone(&id));
    }
    cluster
}

/// Old pods of a StatefulSet with their claims.
fn ordinal_pods(mut cluster: Cluster, ordinals: Range<usize>, change: Change) -> Cluster {
    for n in ordinals {
        cluster = cluster.pod(change(running_v1(pod(&format!("web-{n}")).revision("old"))));
        cluster = cluster.claim(claim(&format!("data-web-{n}")));
    }
    cluster
}

fn running_v1(fixture: PodFixture) -> PodFixture {
    fixture.detailed(|d| {
        Arc::make_mut(&mut d.spec).containers[0].image = "v1".into();
        d.statuses = Box::new([Some(container_status("v1"))]);
    })
}

fn as_they_are(fixture: PodFixture) -> PodFixture {
    fixture
}

fn number(count: usize) -> i32 {
    i32::try_from(count).expect("a number of pods")
}

/// With a claim each, and a budget that holds up nothing.
fn unhurried(cluster: Cluster) -> Cluster {
    let rolling = json!({"maxUnavailable": "100%"});
    cluster.rolling(rolling).claim_templates(&["data"])
}

type Situation = (&'static str, fn(usize) -> Cluster);

const CLONES: [Situation; 31] = [
    ("nothing is there", |n| unhurried(clones(number(n)))),
    ("claims are there", |n| {
        let reused = unhurried(clones(number(n))).spec("/scaleStrategy/enablePVCReuse", json!(true));
        clone_claims(reused, n)
    }),
    ("all are made again", old_clones),
    ("all are changed in place", |n| {
        old_clones(n).rolling(json!({"maxUnavailable": "100%", "podUpdatePolicy": "InPlaceIfPossible"}))
    }),
    ("all stay old", |n| old_clones(n).rolling(json!({"partition": "100%"}))),
    ("all are surged for", |n| {
        old_clones(n).rolling(json!({"maxUnavailable": 0, "maxSurge": "100%"}))
    }),
    ("old ones are scattered", |n| {
        let terms = json!([{"key": "app", "value": "web"}]);
        old_clones(n).rolling(json!({"maxUnavailable": "100%", "scatterStrategy": terms}))
    }),
    ("old ones are scattered by as many terms, which match nobody", |n| {
        let term = |n: usize| json!({"key": "app", "value": format!("other-{n}")});
        let terms: Vec<Value> = (0..n).map(term).collect();
        old_clones(n).rolling(json!({"maxUnavailable": "100%", "scatterStrategy": terms}))
    }),
    ("old ones have priorities, by as many values", |n| {
        let terms = json!({"weightPriority": [{"weight": 1, "matchSelector": as_many_values(n)}]});
        old_clones(n).rolling(json!({"maxUnavailable": "100%", "priorityStrategy": terms}))
    }),
    ("scaled to half, spread over one key as often", |n| {
        spread_clones(n, |_| "example.com/rack".to_owned())
    }),
    ("scaled to half, spread over as many keys", |n| {
        spread_clones(n, |n| format!("example.com/rack-{n}"))
    }),
    ("scaled to nothing", |n| old_clones(n).spec("/replicas", json!(0))),
    ("scaled to half", |n| old_clones(n).spec("/replicas", json!(n / 2))),
    ("scaled to half, claims stay", |n| {
        let reused = old_clones(n).spec("/scaleStrategy/enablePVCReuse", json!(true));
        reused.spec("/replicas", json!(n / 2))
    }),
    ("scaled to nothing, hooks hold", |n| {
        let hook = json!({"labelsHandler": {"app": "web"}});
        old_clones(n)
            .spec("/replicas", json!(0))
            .spec("/lifecycle/preDelete", hook)
    }),
    ("all are named", |n| {
        let named: Vec<String> = (0..n).map(|n| format!("web-{n:05}")).collect();
        old_clones(n).spec("/scaleStrategy/podsToDelete", json!(named))
    }),
    ("all are asked for, and none may go", |n| {
        let asked = |pod: PodFixture| pod.label(names::SPECIFIED_DELETE_LABEL, "true");
        clone_pods(unhurried(clones(number(n))), n, asked).rolling(json!({"maxUnavailable": 0, "maxSurge": 1}))
    }),
    ("none is ready", |n| {
        clone_pods(unhurried(clones(number(n))), n, |pod| pod.unready_since(NOW - 60))
    }),
    ("all have ended", |n| {
        clone_pods(unhurried(clones(number(n))), n, |pod| pod.phase(Phase::Failed))
    }),
    ("all go", |n| {
        clone_pods(unhurried(clones(number(n))), n, PodFixture::terminating)
    }),
    ("all hand over", |n| {
        let replaced = |pod: PodFixture| pod.terminating().annotated(names::REPLACED_BY_UPDATE, "true");
        clone_pods(unhurried(clones(number(n))), n, replaced).annotation(names::KEEP_CLAIMS_ON_RECREATE, "true")
    }),
    ("all are taken", |n| {
        clone_pods(unhurried(clones(number(n))), n, PodFixture::orphan).annotation(names::ADOPT_ORPHANS, "true")
    }),
    ("all are let go", |n| {
        clone_pods(unhurried(clones(number(n))), n, |pod| pod.label("app", "other"))
    }),
    ("all are marked by the update and named", |n| {
        let named: Vec<String> = (0..n).map(|n| format!("web-{n:05}")).collect();
        let marked = |pod: PodFixture| {
            let asked = pod.label(names::SPECIFIED_DELETE_LABEL, "true");
            asked.annotated(names::REPLACED_BY_UPDATE, "true")
        };
        let set = clone_pods(unhurried(clones(number(n))), n, marked);
        set.rolling(json!({"maxUnavailable": 0, "maxSurge": 1}))
            .spec("/scaleStrategy/podsToDelete", json!(named))
    }),
    ("all share an id with as many claims, and are too many", |n| {
        sharing_clones(n, as_they_are)
    }),
    ("all share an id with as many claims, mounted by one that goes", |n| {
        let first = pod("web-00000")
            .revision("web-old")
            .label(names::INSTANCE_ID_LABEL, "first");
        sharing_clones(n, as_they_are).pod(first.unready().mounting("data", "data-web-00001"))
    }),
    ("all share an id with as many claims, and go", |n| {
        sharing_clones(n, PodFixture::terminating)
    }),
    ("as many containers are to be kept ready", |n| {
        let named: Vec<String> = (0..n).map(|n| format!("c{n}")).collect();
        old_clones(n)
            .rolling(json!({"maxUnavailable": "100%", "podUpdatePolicy": "InPlaceIfPossible"}))
            .annotation(names::KEEP_READY_CONTAINERS, &named.join(","))
    }),
    (
        "all have yet to start, with claims of which as much is on record",
        |n| {
            let stay = unhurried(clones(number(n))).rolling(json!({"partition": "100%"}));
            clone_pods(recording_labels(stay, n), n, yet_to_start)
        },
    ),
    ("all stay at a revision that is none of as many", |n| {
        let stay = unhurried(clones(number(n))).rolling(json!({"partition": "100%"}));
        clone_pods(many_revisions(stay, n), n, |pod| {
            pod.revision("web-gone").label(names::MADE_AS_LABEL, "other")
        })
    }),
    ("each stays at another revision, which is equal", |n| {
        let mut stay = many_revisions(unhurried(clones(number(n))), n).rolling(json!({"partition": "100%"}));
        for n in 0..n {
            let fixture = pod(&format!("web-{n:05}")).revision(&format!("other-{n:05}"));
            stay = stay.pod(fixture.label(names::INSTANCE_ID_LABEL, &format!("{n:05}")));
        }
        stay.spec("/template", template("v1"))
    }),
];

/// Pods of a set that wants none, all with one id, which as many claims have.
fn sharing_clones(count: usize, change: Change) -> Cluster {
    let mut cluster = unhurried(clones(0));
    for n in 0..count {
        let fixture = pod(&format!("web-{n:05}"))
            .revision("web-old")
            .label(names::INSTANCE_ID_LABEL, "xxxxx");
        cluster = cluster.pod(change(fixture));
        cluster = cluster.claim(claim(&format!("data-web-{n:05}")).of_clone("xxxxx"));
    }
    cluster
}

fn yet_to_start(fixture: PodFixture) -> PodFixture {
    fixture.on(None).phase(Phase::Pending).never_ready()
}

/// The old revision has recorded a claim template with so many labels.
fn recording_labels(mut cluster: Cluster, count: usize) -> Cluster {
    let labels: Map<String, Value> = (0..count).map(|n| (format!("l{n}"), json!("1"))).collect();
    let old = Arc::make_mut(&mut cluster.own_revisions[0]);
    old.claim_templates = Some(Arc::new(RecordedClaims::new(
        &json!([{"metadata": {"name": "data", "labels": labels}, "spec": {}}]),
    )));
    let old = cluster.own_revisions[0].clone();
    cluster.revisions.insert(old.name().to_owned(), old);
    cluster
}

/// With so many revisions more, all equal to the old one.
fn many_revisions(mut cluster: Cluster, count: usize) -> Cluster {
    let old = cluster.own_revisions[0].clone();
    for n in 0..count {
        let mut record = (*old).clone();
        record.meta.key = record.meta.key.sibling(format!("web-{n:05}"));
        record.meta.uid = Uid::new(&format!("uid-of-revision-{n}"));
        let record = Arc::new(record);
        cluster.revisions.insert(record.name().to_owned(), record.clone());
        cluster.own_revisions.push(record);
    }
    cluster
}

fn old_clones(count: usize) -> Cluster {
    clone_pods(unhurried(clones(number(count))), count, as_they_are)
}

/// A selector with so many values, none of which a pod has.
fn as_many_values(count: usize) -> Value {
    let values: Vec<String> = (0..count).map(|n| format!("other-{n}")).collect();
    json!({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": values}]})
}

/// Old pods, half of which are too many, of a set whose template has as many spread constraints.
fn spread_clones(count: usize, key: fn(usize) -> String) -> Cluster {
    let constraints: Vec<Value> = (0..count).map(|n| json!({"topologyKey": key(n)})).collect();
    let mut spread = template("v2");
    spread["spec"]["topologySpreadConstraints"] = json!(constraints);
    let set = unhurried(clones(number(count))).no_revisions();
    let set = set
        .revision_of("web-old", 1, &template("v1"))
        .revision_of("web-new", 2, &spread);
    clone_pods(set.spec("/template", spread), count, as_they_are).spec("/replicas", json!(count / 2))
}

type Start = fn(i32) -> Cluster;
const KINDS: [(&str, Start); 3] = [
    ("advanced", advanced),
    ("native", native),
    ("ordered", |replicas| native(replicas).ordered()),
];

type Started = fn(Start, usize) -> Cluster;

const ORDINALS: [(&str, Started); 18] = [
    ("nothing is there", |start, n| unhurried(start(number(n)))),
    ("nothing is there, half stay old", |start, n| {
        unhurried(start(number(n))).rolling(json!({"partition": n / 2}))
    }),
    ("nothing is there, no partition", |start, n| {
        unhurried(start(number(n))).spec("/updateStrategy", json!({"type": "RollingUpdate"}))
    }),
    ("all are made again", old_ordinals),
    ("all go before new ones come", |start, n| {
        let recreating = unhurried(start(number(n))).annotation("flotilla.rs/update-type", "Recreate");
        ordinal_pods(recreating, 0..n / 2, as_they_are)
    }),
    ("all are changed in place", |start, n| {
        old_ordinals(start, n).rolling(json!({"maxUnavailable": "100%", "podUpdatePolicy": "InPlaceIfPossible"}))
    }),
    ("all have priorities, by as many values", |start, n| {
        let terms = json!({"weightPriority": [{"weight": 1, "matchSelector": as_many_values(n)}]});
        let unordered = json!({"priorityStrategy": terms});
        old_ordinals(start, n).rolling(json!({"maxUnavailable": "100%", "unorderedUpdate": unordered}))
    }),
    ("special ones are told by as many values", |start, n| {
        old_ordinals(start, n).spec("/specialPodsSelectors", json!([as_many_values(n)]))
    }),
    ("scaled to nothing", |start, n| {
        old_ordinals(start, n).spec("/replicas", json!(0))
    }),
    ("claims go with their pods", |start, n| {
        let policy = json!({"whenScaled": "Delete", "whenDeleted": "Delete"});
        old_ordinals(start, n).spec("/persistentVolumeClaimRetentionPolicy", policy)
    }),
    ("none is ready", |start, n| {
        ordinal_pods(unhurried(start(number(n))), 0..n, |pod| pod.unready_since(NOW - 60))
    }),
    ("all have ended", |start, n| {
        ordinal_pods(unhurried(start(number(n))), 0..n, |pod| pod.phase(Phase::Failed))
    }),
    ("all are taken", |start, n| {
        ordinal_pods(unhurried(start(number(n))), 0..n, PodFixture::orphan)
    }),
    ("all are taken, within a budget and above a partition", |start, n| {
        let set = unhurried(start(number(n))).rolling(json!({"partition": n / 2}));
        let set = set.spec("/scaleStrategy/maxUnavailable", json!("100%"));
        ordinal_pods(set, 0..n, PodFixture::orphan)
    }),
    ("all are made again for claims that are new", |start, n| {
        old_ordinals(start, n).claim_templates(&["data", "logs"])
    }),
    ("all are asked for", |start, n| {
        let asked = |pod: PodFixture| pod.label(names::SPECIFIED_DELETE_LABEL, "true");
        ordinal_pods(unhurried(start(number(n))), 0..n, asked)
    }),
    (
        "all have yet to start, with claims of which as much is on record",
        |start, n| {
            let stay = unhurried(start(number(n))).rolling(json!({"partition": n}));
            ordinal_pods(recording_labels(stay, n), 0..n, yet_to_start)
        },
    ),
    ("all stay at a revision that is none of as many", |start, n| {
        let stay = unhurried(start(number(n))).rolling(json!({"partition": n}));
        ordinal_pods(many_revisions(stay, n), 0..n, |pod| {
            pod.revision("gone").label(names::MADE_AS_LABEL, "other")
        })
    }),
];

fn old_ordinals(start: Start, count: usize) -> Cluster {
    ordinal_pods(unhurried(start(number(count))), 0..count, as_they_are)
}

/// Processor time of this thread: what else runs on the machine is not counted.
fn spent() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).expect("time is spent, not gained");
    Duration::new(seconds, u32::try_from(time.tv_nsec).expect("less than a second"))
}

/// Fails if a pass over the larger set is out of proportion to one over the smaller.
fn is_in_proportion(what: &str, situation: impl Fn(usize) -> Cluster) {
    let read = |count| {
        let mut cluster = situation(count);
        cluster.record = Some(cluster.record());
        cluster
    };
    costs_in_proportion(what, SIZES, read, Cluster::pass);
}

/// Fails if work on the larger of two is out of proportion to the same on the smaller.
fn costs_in_proportion<T, R>(what: &str, sizes: [usize; 2], of_size: impl Fn(usize) -> T, work: impl Fn(&T) -> R) {
    let [small, large] = sizes.map(of_size);
    let look = |on: &T| {
        let begun = spent();
        black_box(work(on));
        spent().saturating_sub(begun)
    };
    let mut fastest = [Duration::MAX; 2];
    for _ in 0..LOOKS {
        fastest = [fastest[0].min(look(&small)), fastest[1].min(look(&large))];
        if fastest[1].as_secs_f64() <= MOST * fastest[0].as_secs_f64() {
            return;
        }
    }
    panic!("{what}: sizes {sizes:?} take {fastest:?}");
}

/// A template with so many of something, before a change and after it.
type TemplateChange = fn(usize) -> [Value; 2];

/// A template with so many variables, and with this metadata.
fn with(count: usize, variable: fn(usize) -> Value, metadata: Value) -> Value {
    let env: Vec<Value> = (0..count).map(variable).collect();
    json!({"metadata": metadata, "spec": {"containers": [{"name": "main", "image": "v1", "env": env}]}})
}

const CHANGES: [(&str, TemplateChange); 3] = [
    ("annotations come beside variables", |n| {
        let variables = |n: usize| json!({"name": format!("E{n}"), "value": "x"});
        let annotations: Map<String, Value> = (0..n).map(|n| (format!("a{n}"), json!("1"))).collect();
        [
            with(n, variables, json!({})),
            with(n, variables, json!({"annotations": annotations})),
        ]
    }),
    ("labels come to which variables refer", |n| {
        let refer = |n: usize| json!({"name": format!("E{n}"), "valueFrom": {"fieldRef": {"fieldPath": format!("metadata.labels['l{n}']")}}});
        let labels: Map<String, Value> = (0..n).map(|n| (format!("l{n}"), json!("1"))).collect();
        [with(n, refer, json!({})), with(n, refer, json!({"labels": labels}))]
    }),
    ("finalizers come and go", |n| {
        let of = |domain: &str| -> Value { (0..n).map(|n| format!("{domain}/f{n}")).collect() };
        let variables = |_| json!({});
        [
            with(0, variables, json!({"finalizers": of("a.io")})),
            with(0, variables, json!({"finalizers": of("b.io")})),
        ]
    }),
];

#[test]
fn a_pass_over_a_clone_set_costs_in_proportion_to_it() {
    for (what, situation) in CLONES {
        is_in_proportion(what, situation);
    }
}

#[test]
fn a_pass_over_a_stateful_set_costs_in_proportion_to_it() {
    for (kind, start) in KINDS {
        for (what, situation) in ORDINALS {
            is_in_proportion(&format!("{kind}, {what}"), |count| situation(start, count));
        }
    }
}

#[test]
fn a_comparison_of_templates_costs_in_proportion_to_them() {
    for (what, change) in CHANGES {
        costs_in_proportion(what, TEMPLATE_SIZES, change, |[old, new]| {
            eligible::compare(SetKind::Clone, old, new).expect("it can be done in place")
        });
    }
}

/// Each pod mounts a claim that belongs to a pod which is none of ours, as anybody may write.
fn claims_of_strangers(n: usize) -> Cluster {
    let mut cluster = unhurried(clones(0));
    for n in 0..n {
        let id = format!("{n:05}");
        let fixture = pod(&format!("web-{id}"))
            .revision("web-old")
            .label(names::INSTANCE_ID_LABEL, &id);
        cluster = cluster.pod(running_v1(fixture).mounting("data", &format!("data-web-{id}")));
        let mut stranger = crate::testing::owner("v1", "Pod", "stranger", &format!("stranger-{n}"));
        stranger.controller = true;
        cluster = cluster.claim(claim(&format!("data-web-{id}")).of_clone(&id).owners(vec![stranger]));
    }
    cluster
}

#[test]
fn whose_a_claim_is_costs_one_look() {
    is_in_proportion("claims of strangers, scaled to nothing", claims_of_strangers);
}

/// All mount one claim of the set, and have another of their own.
fn one_claim_for_all(n: usize, change: Change) -> Cluster {
    let mut cluster = unhurried(clones(0)).claim(claim("data-web-one").of_clone("one"));
    for n in 0..n {
        let id = format!("{n:05}");
        let fixture = pod(&format!("web-{id}"))
            .revision("web-old")
            .label(names::INSTANCE_ID_LABEL, &id);
        cluster = cluster.pod(change(running_v1(fixture).mounting("data", "data-web-one")));
        cluster = cluster.claim(claim(&format!("data-web-{id}")).of_clone(&id));
    }
    cluster
}

#[test]
fn who_else_has_a_claim_costs_one_look() {
    let asked = |fixture: PodFixture| fixture.phase(Phase::Failed).label(names::SPECIFIED_DELETE_LABEL, "1");
    let reusing = |cluster: Cluster| cluster.spec("/scaleStrategy/enablePVCReuse", json!(true));
    is_in_proportion("one claim for all, scaled to nothing", |n| {
        one_claim_for_all(n, as_they_are)
    });
    is_in_proportion("one claim for all, going", |n| {
        one_claim_for_all(n, PodFixture::terminating)
    });
    is_in_proportion("one claim for all, ended", |n| reusing(one_claim_for_all(n, asked)));
}
