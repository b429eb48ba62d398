//! What is to be done about what is stored.

use super::read::{self, Certificate};
use super::{CLOCKS_DIFFER_MAX, Lifetimes, Stored, Unusable};
use flotilla_model::Timestamp;
use std::fmt;

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Nothing before then.
    Keep(Timestamp),
    /// Sign another serving certificate; the authority stays.
    Serving(Reason),
    /// Put another authority before the present one; the serving certificate stays.
    Authority(Reason),
    /// Take the authorities away that nothing is signed by any more.
    Forget,
    /// Make everything anew: nothing of what is stored can be trusted.
    Replace(Reason),
}

/// Why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// There is none.
    Missing,
    /// It does not carry our label: somebody else has made it.
    Foreign,
    /// It cannot be read, or is not a pair.
    Unusable(Unusable),
    /// Its time is over.
    Expired(&'static str, Timestamp),
    /// It begins later than clocks may differ.
    NotYet(&'static str, Timestamp),
    /// Less than a third of its time is left.
    Due(&'static str, Timestamp),
    /// No authority of the bundle has signed it.
    NotSigned,
    /// The authority has changed, and everybody has been told.
    NewAuthority,
    /// It does not cover this name.
    Lacks(String),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Missing => f.write_str("there is none yet"),
            Reason::Foreign => f.write_str("it does not carry our label, so somebody else has made it"),
            Reason::Unusable(why) => why.fmt(f),
            Reason::Expired(which, at) => write!(f, "{which} has expired at {at}"),
            Reason::NotYet(which, at) => write!(f, "{which} is not valid before {at}"),
            Reason::Due(which, at) => write!(f, "{which} expires at {at}, a third of its time is left"),
            Reason::NotSigned => f.write_str("tls.crt is not signed by an authority in ca.crt"),
            Reason::NewAuthority => f.write_str("the authority has changed"),
            Reason::Lacks(name) => write!(f, "tls.crt does not cover {name}"),
        }
    }
}

/// What is to be done about what is stored, so that a certificate for all of `names` can be shown at any time.
pub fn decide(stored: Option<&Stored>, names: &[String], lifetimes: &Lifetimes, now: Timestamp) -> Decision {
    let Some(stored) = stored else {
        return Decision::Replace(Reason::Missing);
    };
    if !stored.is_ours {
        return Decision::Replace(Reason::Foreign);
    }
    let authorities = match read::authorities(stored) {
        Ok(authorities) => authorities,
        Err(why) => return Decision::Replace(Reason::Unusable(why)),
    };
    let authority = &authorities[0];
    if let Some(reason) = wrong_time("ca.crt", authority, now) {
        return Decision::Replace(reason);
    }
    let serving = match servable(stored, &authorities, names, now) {
        Ok(serving) => serving,
        Err(reason) => return Decision::Serving(reason),
    };
    if authorities.len() > 1 {
        return change_over(&serving, authority, lifetimes, now);
    }
    // First, since it is shown until everybody has heard of another authority.
    if now >= serving.renew_from() {
        return Decision::Serving(Reason::Due("tls.crt", serving.not_after));
    }
    if now >= authority.renew_from() {
        return Decision::Authority(Reason::Due("ca.crt", authority.not_after));
    }
    Decision::Keep(serving.renew_from().min(authority.renew_from()))
}

/// The serving certificate, or why it cannot go on being shown.
fn servable(
    stored: &Stored,
    authorities: &[Certificate],
    names: &[String],
    now: Timestamp,
) -> Result<Certificate, Reason> {
    read::serving_key(stored).map_err(Reason::Unusable)?;
    let mut chain = read::certificates(&stored.serving, "tls.crt").map_err(Reason::Unusable)?;
    let serving = chain.swap_remove(0);
    if let Some(reason) = wrong_time("tls.crt", &serving, now) {
        return Err(reason);
    }
    if !authorities.iter().any(|authority| serving.is_signed_by(authority)) {
        return Err(Reason::NotSigned);
    }
    match serving.lacks(names) {
        Some(name) => Err(Reason::Lacks(name.to_owned())),
        None => Ok(serving),
    }
}

fn wrong_time(which: &'static str, certificate: &Certificate, now: Timestamp) -> Option<Reason> {
    if now >= certificate.not_after {
        return Some(Reason::Expired(which, certificate.not_after));
    }
    // One that begins a little ahead of us was made by a clock ahead of ours. To replace it would begin a quarrel between two clocks.
    (now + CLOCKS_DIFFER_MAX < certificate.not_before).then_some(Reason::NotYet(which, certificate.not_before))
}

/// The next step from an old authority to a new one. Each gives the step before time to reach everybody.
fn change_over(serving: &Certificate, authority: &Certificate, lifetimes: &Lifetimes, now: Timestamp) -> Decision {
    if serving.is_signed_by(authority) {
        let settled = serving.made() + lifetimes.settling;
        return if now >= settled {
            Decision::Forget
        } else {
            Decision::Keep(settled)
        };
    }
    let settled = authority.made() + lifetimes.settling;
    if now >= settled {
        Decision::Serving(Reason::NewAuthority)
    } else {
        Decision::Keep(settled)
    }
}
