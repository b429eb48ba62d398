use super::*;
use flotilla_model::Timestamp;
use proptest::prelude::*;

const DAY: Duration = Duration::from_secs(24 * 3600);
const HOUR: Duration = Duration::from_secs(3600);

fn now() -> Timestamp {
    "2026-03-01T00:00:00Z".parse().unwrap()
}

fn names() -> Vec<String> {
    vec![
        "flotilla-webhook.flotilla-system.svc".to_owned(),
        "127.0.0.1".to_owned(),
    ]
}

fn made_at(at: Timestamp) -> Stored {
    let lifetimes = Lifetimes::default();
    renew(&decide(None, &names(), &lifetimes, at), None, &names(), &lifetimes, at)
        .unwrap()
        .unwrap()
}

fn decided(stored: &Stored, at: Timestamp) -> Decision {
    decide(Some(stored), &names(), &Lifetimes::default(), at)
}

fn follow(stored: &Stored, at: Timestamp) -> Stored {
    renew(&decided(stored, at), Some(stored), &names(), &Lifetimes::default(), at)
        .unwrap()
        .unwrap()
}

/// In one word, for tables.
fn word(decision: &Decision) -> String {
    match decision {
        Decision::Keep(_) => "keep".to_owned(),
        Decision::Forget => "forget".to_owned(),
        Decision::Serving(reason) => format!("serving: {reason}"),
        Decision::Authority(reason) => format!("authority: {reason}"),
        Decision::Replace(reason) => format!("replace: {reason}"),
    }
}

/// ADM-4: what is stored can be wrong in any way; each has its answer and its reason.
#[test]
fn whatever_is_stored_is_kept_mended_or_replaced() {
    let good = made_at(now());
    let other = made_at(now());
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_owned();
    let with = |change: &dyn Fn(&mut Stored)| {
        let mut stored = good.clone();
        change(&mut stored);
        stored
    };
    for (stored, expected) in [
        (good.clone(), "keep"),
        (
            with(&|s| s.is_ours = false),
            "replace: it does not carry our label, so somebody else has made it",
        ),
        (
            with(&|s| s.authorities.clear()),
            "replace: ca.crt holds no certificate in PEM",
        ),
        (
            with(&|s| s.authorities.clone_from(&broken)),
            "replace: ca.crt holds no certificate in PEM",
        ),
        (
            with(&|s| s.authorities = "nonsense".to_owned()),
            "replace: ca.crt holds no certificate in PEM",
        ),
        (
            with(&|s| s.authority_key.clear()),
            "replace: ca.key holds no private key in PEM",
        ),
        (
            with(&|s| s.authority_key.clone_from(&other.authority_key)),
            "replace: ca.key is not the key of ca.crt",
        ),
        (
            with(&|s| s.serving.clear()),
            "serving: tls.crt holds no certificate in PEM",
        ),
        (
            with(&|s| s.serving.clone_from(&broken)),
            "serving: tls.crt holds no certificate in PEM",
        ),
        (
            with(&|s| s.serving_key = "nonsense".to_owned()),
            "serving: tls.key holds no private key in PEM",
        ),
        (
            with(&|s| s.serving_key.clone_from(&other.serving_key)),
            "serving: tls.key is not the key of tls.crt",
        ),
        (
            with(&|s| {
                s.serving.clone_from(&other.serving);
                s.serving_key.clone_from(&other.serving_key);
            }),
            "serving: tls.crt is not signed by an authority in ca.crt",
        ),
    ] {
        let decision = decided(&stored, now());
        assert_eq!(word(&decision), expected);
        if let Some(mended) = renew(&decision, Some(&stored), &names(), &Lifetimes::default(), now()).unwrap() {
            assert_eq!(word(&decided(&mended, now())), "keep", "after: {expected}");
        }
    }
    assert_eq!(
        word(&decide(None, &names(), &Lifetimes::default(), now())),
        "replace: there is none yet"
    );
}

/// ADM-4: renewed when a third of the lifetime is left; a clock an hour off on either side changes nothing.
#[test]
fn time_decides_when_to_renew() {
    let good = made_at(now());
    for (at, expected) in [
        (now() - HOUR * 2, "keep"),
        (
            now() - HOUR * 2 - Duration::from_secs(1),
            "replace: ca.crt is not valid before 2026-02-28T23:00:00Z",
        ),
        (now() + HOUR, "keep"),
        (now() + DAY * 20 - Duration::from_secs(1), "keep"),
        (
            now() + DAY * 20,
            "serving: tls.crt expires at 2026-03-31T00:00:00Z, a third of its time is left",
        ),
        (now() + DAY * 30, "serving: tls.crt has expired at 2026-03-31T00:00:00Z"),
        (now() + DAY * 365, "replace: ca.crt has expired at 2027-03-01T00:00:00Z"),
    ] {
        assert_eq!(word(&decided(&good, at)), expected, "{at}");
    }
    assert_eq!(decided(&good, now()), Decision::Keep(now() + DAY * 20));
    let renewed = follow(&good, now() + DAY * 20);
    assert_eq!(
        (renewed.authorities, renewed.authority_key),
        (good.authorities, good.authority_key)
    );
}

/// ADM-4: a name that is no longer covered.
#[test]
fn other_names_need_another_certificate() {
    let good = made_at(now());
    let more = vec!["127.0.0.1".to_owned(), "example.test".to_owned()];
    let decision = decide(Some(&good), &more, &Lifetimes::default(), now());
    assert_eq!(word(&decision), "serving: tls.crt does not cover example.test");
    let fewer = vec!["127.0.0.1".to_owned()];
    assert_eq!(word(&decide(Some(&good), &fewer, &Lifetimes::default(), now())), "keep");
}

/// ADM-4: during a change of the authority the bundle carries both, and whoever trusts the bundle of any step can connect in the next.
#[test]
fn a_new_authority_comes_in_three_steps() {
    // Its serving certificate is fresh all the time.
    let at = now() + DAY * 250;
    let first = follow(&made_at(now()), at - DAY * 5);
    let second = follow(&first, at);
    assert_eq!(
        word(&decided(&first, at)),
        "authority: ca.crt expires at 2027-03-01T00:00:00Z, a third of its time is left"
    );
    assert_eq!(certificates_in(&second.authorities), 2);
    assert_eq!(second.serving, first.serving);
    assert_eq!(decided(&second, at), Decision::Keep(at + Lifetimes::default().settling));

    let later = at + Lifetimes::default().settling;
    assert_eq!(word(&decided(&second, later)), "serving: the authority has changed");
    let third = follow(&second, later);
    assert_eq!(third.authorities, second.authorities);
    assert_eq!(
        decided(&third, later),
        Decision::Keep(later + Lifetimes::default().settling)
    );

    let last = later + Lifetimes::default().settling;
    assert_eq!(word(&decided(&third, last)), "forget");
    let fourth = follow(&third, last);
    assert_eq!(certificates_in(&fourth.authorities), 1);
    assert_eq!(word(&decided(&fourth, last)), "keep");

    for pair in [&first, &second, &third, &fourth].windows(2) {
        let bundle = read::certificates(&pair[0].authorities, "ca.crt").unwrap();
        let shown = read::certificates(&pair[1].serving, "tls.crt").unwrap();
        assert!(bundle.iter().any(|authority| shown[0].is_signed_by(authority)));
        let bundle = read::certificates(&pair[1].authorities, "ca.crt").unwrap();
        let shown = read::certificates(&pair[0].serving, "tls.crt").unwrap();
        assert!(bundle.iter().any(|authority| shown[0].is_signed_by(authority)));
    }
}

fn certificates_in(bundle: &str) -> usize {
    bundle.matches("BEGIN CERTIFICATE").count()
}

/// ADM-4: the texts of keys are in no log.
#[test]
fn keys_are_not_printed() {
    assert!(!format!("{:?}", made_at(now())).contains("PRIVATE"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// ADM-4: whatever the moments at which somebody looks, the clock an hour off or not, after following the decision there is a
    /// certificate that can be shown, and each look leads to at most three further changes.
    #[test]
    fn looking_at_any_time_ends_well(steps in proptest::collection::vec((0u64..200, -1i64..=1), 1..5)) {
        let mut stored = made_at(now());
        let mut at = now();
        for (days, hour_off) in steps {
            at = at + DAY * u32::try_from(days).unwrap();
            let seen = if hour_off < 0 { at - HOUR } else { at + HOUR * u32::try_from(hour_off).unwrap() };
            for _ in 0..3 {
                let decision = decided(&stored, seen);
                if let Some(next) = renew(&decision, Some(&stored), &names(), &Lifetimes::default(), seen).unwrap() {
                    stored = next;
                }
            }
            prop_assert!(matches!(decided(&stored, seen), Decision::Keep(next) if next > seen));
            prop_assert!(serving_key(&stored).is_ok());
        }
    }
}
