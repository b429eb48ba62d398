use super::*;
use crate::{Seen, is_relevant};

#[test]
fn agt_8_2_the_first_list_writes_nothing_to_settled_pods() {
    let in_service = |mut pod: Pod| {
        pod.is_out_of_service = false;
        pod
    };
    let settled = noted(pod("a"), &[entry("containerd://1", Some("a"))]);
    let plain = in_service(pod("a"));
    for (what, pod, first, new) in [
        ("settled", settled.clone(), false, false),
        ("no annotation", plain.clone(), false, true),
        ("no annotation, out of service", pod("a"), true, true),
        (
            "another container",
            noted(plain.clone(), &[entry("containerd://0", Some("a"))]),
            true,
            true,
        ),
        (
            "another environment",
            noted(plain.clone(), &[entry("containerd://1", Some("b"))]),
            true,
            true,
        ),
        (
            "no environment",
            noted(plain.clone(), &[entry("containerd://1", None)]),
            true,
            true,
        ),
        ("another set of containers", noted(plain.clone(), &[]), true, true),
    ] {
        assert_eq!(is_relevant(&pod, Seen::First), first, "{what}");
        assert_eq!(is_relevant(&pod, Seen::New), new, "{what}");
    }
    let mut foreign = pod("a");
    foreign.is_concerned = false;
    assert!(!is_relevant(&foreign, Seen::New));
}

#[test]
fn agt_8_2_pods_left_alone_are_reported_with_their_next_change() {
    let mut before = pod("a");
    before.is_out_of_service = false;
    let relevant = |change: fn(&mut Pod), left_alone: bool| {
        let mut now = before.clone();
        change(&mut now);
        is_relevant(
            &now,
            Seen::Again {
                before: &before,
                left_alone,
            },
        )
    };
    assert!(!relevant(|_| (), true), "nothing changed");
    assert!(!relevant(|pod| pod.version = 8, true), "nothing that is noted changed");
    assert!(relevant(|_| (), false), "the annotation was taken away");
    assert!(relevant(|pod| pod.containers[0].id = "containerd://2".to_owned(), true));
    assert!(relevant(
        |pod| pod.containers[0].environment[0].1 = "b".to_owned(),
        true
    ));
    assert!(relevant(|pod| pod.containers.push(Container::default()), true));
    assert!(relevant(|pod| pod.is_out_of_service = true, true));
}
