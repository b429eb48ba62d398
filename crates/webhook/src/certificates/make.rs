//! Making keys and certificates.

use super::read::{self, pem_blocks};
use super::{CLOCKS_DIFFER_MAX, Decision, Lifetimes, Stored};
use flotilla_model::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, Error, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, date_time_ymd,
};

/// What is to be stored after a decision; `None` if that is what is stored already.
pub fn renew(
    decision: &Decision,
    stored: Option<&Stored>,
    names: &[String],
    lifetimes: &Lifetimes,
    now: Timestamp,
) -> Result<Option<Stored>, Error> {
    let stored = stored.cloned().unwrap_or_default();
    let next = match decision {
        Decision::Keep(_) => return Ok(None),
        Decision::Serving(_) => sign(stored, names, lifetimes, now)?,
        Decision::Authority(_) => {
            let (new, key) = authority(lifetimes, now)?;
            Stored {
                authorities: bundle(&[&new, &stored.authorities]),
                authority_key: key,
                ..stored
            }
        }
        Decision::Forget => Stored {
            authorities: bundle(&pem_blocks(&stored.authorities)[..1]),
            ..stored
        },
        Decision::Replace(_) => {
            let (authorities, authority_key) = authority(lifetimes, now)?;
            let fresh = Stored {
                authorities,
                authority_key,
                is_ours: true,
                ..Stored::default()
            };
            sign(fresh, names, lifetimes, now)?
        }
    };
    Ok(Some(next))
}

fn bundle(blocks: &[&str]) -> String {
    let blocks: Vec<_> = blocks.iter().map(|block| block.trim()).collect();
    blocks.join("\n") + "\n"
}

/// Always the same, so that the name of the issuer need not be read from its certificate.
fn authority_params() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, "flotilla webhook authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    params
}

fn set_dates(params: &mut CertificateParams, not_before: Timestamp, not_after: Timestamp) {
    let epoch = Timestamp::from_millis(0);
    params.not_before = date_time_ymd(1970, 1, 1) + not_before.since(epoch);
    params.not_after = date_time_ymd(1970, 1, 1) + not_after.since(epoch);
}

fn authority(lifetimes: &Lifetimes, now: Timestamp) -> Result<(String, String), Error> {
    let mut params = authority_params();
    set_dates(&mut params, now - CLOCKS_DIFFER_MAX, now + lifetimes.authority);
    let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256)?;
    Ok((params.self_signed(&key)?.pem(), key.serialize_pem()))
}

fn sign(stored: Stored, names: &[String], lifetimes: &Lifetimes, now: Timestamp) -> Result<Stored, Error> {
    let issuer = Issuer::new(authority_params(), KeyPair::from_pem(&stored.authority_key)?);
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "flotilla webhook");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    // A certificate is worth nothing when its authority has gone.
    let end = read::certificates(&stored.authorities, "ca.crt")
        .ok()
        .and_then(|authorities| authorities.first().map(|authority| authority.not_after));
    let not_after = (now + lifetimes.serving).min(end.unwrap_or(Timestamp::MAX));
    set_dates(&mut params, now - CLOCKS_DIFFER_MAX, not_after);
    let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256)?;
    let serving = params.signed_by(&key, &issuer)?;
    Ok(Stored {
        serving: serving.pem(),
        serving_key: key.serialize_pem(),
        ..stored
    })
}
