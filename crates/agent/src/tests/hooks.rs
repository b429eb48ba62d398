use crate::stopping::{Hook, HttpHook, Stopping, stopping};
use std::collections::BTreeMap;
use std::time::Duration;

fn of(hook: Option<&str>, grace: Option<&str>) -> Stopping {
    let ports = r#"[{"name":"http","containerPort":8080},{"name":"admin","containerPort":9090}]"#;
    let notes = [
        ("io.kubernetes.container.preStopHandler", hook),
        ("io.kubernetes.pod.terminationGracePeriod", grace),
        ("io.kubernetes.container.ports", Some(ports)),
    ];
    let notes: BTreeMap<String, String> = notes
        .into_iter()
        .filter_map(|(key, value)| Some((key.to_owned(), value?.to_owned())))
        .collect();
    stopping(&notes, "10.0.0.9")
}

fn http(host: &str, port: u16, path: &str) -> HttpHook {
    HttpHook {
        over_tls: false,
        host: host.to_owned(),
        port,
        path: path.to_owned(),
        headers: Vec::new(),
    }
}

#[test]
fn agt_9_6_hooks_are_read_from_what_the_kubelet_noted() {
    let rows = [
        (
            r#"{"exec":{"command":["/stop","now"]}}"#,
            Ok(Hook::Exec(vec!["/stop".to_owned(), "now".to_owned()])),
        ),
        (
            r#"{"httpGet":{"path":"/bye","port":8081}}"#,
            Ok(Hook::Http(http("10.0.0.9", 8081, "/bye"))),
        ),
        (
            r#"{"httpGet":{"path":"bye","port":"admin","scheme":"HTTP"}}"#,
            Ok(Hook::Http(http("10.0.0.9", 9090, "/bye"))),
        ),
        (
            r#"{"httpGet":{"port":"8082","host":"example.test"}}"#,
            Ok(Hook::Http(http("example.test", 8082, "/"))),
        ),
        (
            r#"{"httpGet":{"port":1,"scheme":"HTTPS","httpHeaders":[{"name":"X","value":"y"}]}}"#,
            Ok(Hook::Http(HttpHook {
                over_tls: true,
                headers: vec![("X".to_owned(), "y".to_owned())],
                ..http("10.0.0.9", 1, "/")
            })),
        ),
        (r#"{"sleep":{"seconds":3}}"#, Ok(Hook::Sleep(Duration::from_secs(3)))),
        (r#"{"httpGet":{"port":"grpc"}}"#, Err("no port \"grpc\"")),
        (r#"{"httpGet":{"port":70000}}"#, Err("70000 is no port")),
        (r#"{"tcpSocket":{"port":1}}"#, Err("tcpSocket")),
        (r#"{"newer":{}}"#, Err("not known")),
        ("{", Err("cannot be read")),
    ];
    for (text, expected) in rows {
        match (of(Some(text), None).hook, expected) {
            (Ok(hook), Ok(expected)) => assert_eq!(hook, Some(expected), "{text}"),
            (Err(why), Err(part)) => assert!(why.contains(part), "{text}: {why}"),
            (hook, expected) => panic!("{text}: {hook:?}, not {expected:?}"),
        }
    }
    assert_eq!(of(None, None).hook, Ok(None));
}

#[test]
fn agt_9_6_a_hook_without_host_needs_the_pods_address() {
    let notes = BTreeMap::from([(
        "io.kubernetes.container.preStopHandler".to_owned(),
        r#"{"httpGet":{"port":1}}"#.to_owned(),
    )]);
    assert!(stopping(&notes, "").hook.is_err());
}

#[test]
fn agt_9_6_the_hook_uses_up_the_grace_down_to_two_seconds() {
    let seconds = Duration::from_secs;
    for (grace, hook_took, hook_within, behind) in [
        (None, 0, Some(30), 30),
        (Some("10"), 4, Some(10), 6),
        (Some("10"), 9, Some(10), 2),
        (Some("10"), 99, Some(10), 2),
        (Some("1"), 0, Some(1), 2),
        // No hook, and still two seconds.
        (Some("0"), 0, None, 2),
        (Some("nonsense"), 0, Some(30), 30),
    ] {
        let stopping = of(None, grace);
        assert_eq!(stopping.hook_within(), hook_within.map(seconds), "{grace:?}");
        assert_eq!(stopping.grace_behind(seconds(hook_took)), seconds(behind), "{grace:?}");
    }
}
