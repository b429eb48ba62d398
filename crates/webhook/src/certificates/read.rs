//! What certificates say.

use super::{CLOCKS_DIFFER_MAX, Stored};
use flotilla_model::Timestamp;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::sign::CertifiedKey;
use std::time::Duration;
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};

/// Why a certificate with its key cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// No certificate in it, or nonsense.
    #[error("{0} holds no certificate in PEM")]
    Certificate(&'static str),
    /// No key in it, or nonsense.
    #[error("{0} holds no private key in PEM")]
    Key(&'static str),
    /// They do not belong together.
    #[error("{key} is not the key of {certificate}")]
    Mismatch {
        /// Where the certificate is.
        certificate: &'static str,
        /// Where the key is.
        key: &'static str,
    },
}

/// A certificate and the time for which it is valid.
#[derive(Clone, Debug)]
pub(super) struct Certificate {
    der: CertificateDer<'static>,
    pub(super) not_before: Timestamp,
    pub(super) not_after: Timestamp,
}

impl Certificate {
    fn read(der: CertificateDer<'static>) -> Option<Self> {
        let (not_before, not_after) = {
            let parsed = EndEntityCert::try_from(&der).ok()?;
            // The verifier looks at the dates first, and tells the one that is in the way.
            let complaint = |at: UnixTime| verify(&parsed, &[], at).err();
            let never = UnixTime::since_unix_epoch(Duration::ZERO);
            let for_ever = UnixTime::since_unix_epoch(Duration::from_secs(1 << 40));
            let Some(webpki::Error::CertNotValidYet { not_before, .. }) = complaint(never) else {
                return None;
            };
            let Some(webpki::Error::CertExpired { not_after, .. }) = complaint(for_ever) else {
                return None;
            };
            (not_before, not_after)
        };
        Some(Certificate {
            der,
            not_before: timestamp(not_before),
            not_after: timestamp(not_after),
        })
    }

    /// When it was made: certificates begin earlier than that.
    pub(super) fn made(&self) -> Timestamp {
        self.not_before + CLOCKS_DIFFER_MAX
    }

    /// From when on it is to be renewed: a third of its life is left.
    pub(super) fn renew_from(&self) -> Timestamp {
        self.not_after - self.not_after.since(self.made()) / 3
    }

    /// Whether `authority` has signed it, and it serves at some time of its life.
    pub(super) fn is_signed_by(&self, authority: &Certificate) -> bool {
        let Ok(parsed) = EndEntityCert::try_from(&self.der) else {
            return false;
        };
        verify(
            &parsed,
            std::slice::from_ref(&authority.der),
            unix_time(self.not_before),
        )
        .is_ok()
    }

    /// The first of the names that it does not cover.
    pub(super) fn lacks<'n>(&self, names: &'n [String]) -> Option<&'n str> {
        let covers = |name: &str| {
            let parsed = EndEntityCert::try_from(&self.der).ok()?;
            let name = ServerName::try_from(name).ok()?;
            parsed.verify_is_valid_for_subject_name(&name).ok()
        };
        names.iter().map(String::as_str).find(|name| covers(name).is_none())
    }
}

fn verify(
    certificate: &EndEntityCert<'_>,
    authorities: &[CertificateDer<'_>],
    at: UnixTime,
) -> Result<(), webpki::Error> {
    let anchors = authorities
        .iter()
        .map(anchor_from_trusted_cert)
        .collect::<Result<Vec<_>, _>>()?;
    let algorithms = ring::default_provider().signature_verification_algorithms.all;
    certificate
        .verify_for_usage(algorithms, &anchors, &[], at, KeyUsage::server_auth(), None, None)
        .map(drop)
}

fn timestamp(time: UnixTime) -> Timestamp {
    Timestamp::from_seconds(i64::try_from(time.as_secs()).unwrap_or(i64::MAX))
}

fn unix_time(time: Timestamp) -> UnixTime {
    UnixTime::since_unix_epoch(time.since(Timestamp::from_millis(0)))
}

fn ders(text: &str, name: &'static str) -> Result<Vec<CertificateDer<'static>>, Unusable> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    all.ok()
        .filter(|all| !all.is_empty())
        .ok_or(Unusable::Certificate(name))
}

/// All certificates of a text, at least one.
pub(super) fn certificates(text: &str, name: &'static str) -> Result<Vec<Certificate>, Unusable> {
    let all: Option<Vec<_>> = ders(text, name)?.into_iter().map(Certificate::read).collect();
    all.ok_or(Unusable::Certificate(name))
}

fn pair(texts: (&str, &str), names: (&'static str, &'static str)) -> Result<CertifiedKey, Unusable> {
    let chain = ders(texts.0, names.0)?;
    let key = PrivateKeyDer::from_pem_slice(texts.1.as_bytes()).map_err(|_| Unusable::Key(names.1))?;
    let provider: CryptoProvider = ring::default_provider();
    CertifiedKey::from_der(chain, key, &provider).map_err(|why| match why {
        rustls::Error::InconsistentKeys(_) => Unusable::Mismatch {
            certificate: names.0,
            key: names.1,
        },
        rustls::Error::InvalidCertificate(_) => Unusable::Certificate(names.0),
        _ => Unusable::Key(names.1),
    })
}

/// What to show to clients, if it can be used.
pub fn serving_key(stored: &Stored) -> Result<CertifiedKey, Unusable> {
    let names = ("tls.crt", "tls.key");
    let key = pair((&stored.serving, &stored.serving_key), names)?;
    certificates(&stored.serving, names.0)?;
    Ok(key)
}

/// When the certificate that is shown expires.
pub fn serving_ends(stored: &Stored) -> Option<Timestamp> {
    let chain = certificates(&stored.serving, "tls.crt").ok()?;
    chain.first().map(|serving| serving.not_after)
}

/// The authorities, if the first one can sign.
pub(super) fn authorities(stored: &Stored) -> Result<Vec<Certificate>, Unusable> {
    let names = ("ca.crt", "ca.key");
    let all = certificates(&stored.authorities, names.0)?;
    pair((&stored.authorities, &stored.authority_key), names)?;
    Ok(all)
}

/// The text of one certificate of a bundle.
pub(super) fn pem_blocks(bundle: &str) -> Vec<&str> {
    const END: &str = "-----END CERTIFICATE-----";
    bundle
        .split_inclusive(END)
        .filter(|block| block.contains(END))
        .map(str::trim)
        .collect()
}
