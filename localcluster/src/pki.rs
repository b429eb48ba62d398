//! Certificates and kubeconfigs of one cluster.

use crate::error::Error;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use std::fs;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A cluster's certificate authority and what it has signed, as files in one directory.
pub(crate) struct Pki {
    directory: PathBuf,
}

impl Pki {
    /// The certificates in `directory`; made if they are not there.
    pub(crate) fn open(directory: PathBuf) -> Result<Self, Error> {
        let pki = Pki { directory };
        if !pki.path("done").exists() {
            fs::create_dir_all(&pki.directory).map_err(|e| Error::io("create", &pki.directory, e))?;
            pki.make()?;
            pki.write("done", "")?;
        }
        Ok(pki)
    }

    /// Path of a file.
    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.directory.join(file)
    }

    fn make(&self) -> Result<(), Error> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.distinguished_name = name("flotilla-local-ca", &[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::CrlSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        self.write("ca.crt", &params.self_signed(&key)?.pem())?;
        self.write("ca.key", &key.serialize_pem())?;
        let accounts = KeyPair::generate()?;
        self.write("sa.key", &accounts.serialize_pem())?;
        self.write("sa.pub", &accounts.public_key_pem())?;
        let apiserver = [
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            "10.96.0.1",
        ];
        self.sign("etcd", "etcd", &[], &[])?;
        self.sign("apiserver", "kube-apiserver", &["system:masters"], &apiserver)?;
        self.sign("controller-manager", "system:kube-controller-manager", &[], &[])?;
        self.sign("scheduler", "system:kube-scheduler", &[], &[])?;
        self.sign("admin", "admin", &["system:masters"], &[])?;
        self.sign("kwok", "kwok", &["system:masters"], &[])?;
        self.sign("provisioner", "provisioner", &["system:masters"], &[])
    }

    /// Signs a certificate for clients and for servers on loopback, as `<file>.crt` and `<file>.key`.
    pub(crate) fn sign(&self, file: &str, user: &str, groups: &[&str], more_names: &[&str]) -> Result<(), Error> {
        let ca = Issuer::from_ca_cert_pem(&self.read("ca.crt")?, KeyPair::from_pem(&self.read("ca.key")?)?)?;
        let key = KeyPair::generate()?;
        let names: Vec<String> = ["localhost", "127.0.0.1"]
            .iter()
            .chain(more_names)
            .map(|n| (*n).to_owned())
            .collect();
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name = name(user, groups);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        self.write(&format!("{file}.crt"), &params.signed_by(&key, &ca)?.pem())?;
        self.write(&format!("{file}.key"), &key.serialize_pem())
    }

    /// Writes `<file>.kubeconfig` for a certificate that was signed before.
    pub(crate) fn kubeconfig(&self, file: &str, port: u16) -> Result<PathBuf, Error> {
        let path = self.path(&format!("{file}.kubeconfig"));
        let config = serde_json::json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "local", "cluster": {
                "server": format!("https://127.0.0.1:{port}"), "certificate-authority": self.path("ca.crt"),
            }}],
            "users": [{"name": file, "user": {
                "client-certificate": self.path(&format!("{file}.crt")), "client-key": self.path(&format!("{file}.key")),
            }}],
            "contexts": [{"name": "local", "context": {"cluster": "local", "user": file}}],
            "current-context": "local",
        });
        self.write(&format!("{file}.kubeconfig"), &config.to_string())?;
        Ok(path)
    }

    fn read(&self, file: &str) -> Result<String, Error> {
        let path = self.path(file);
        fs::read_to_string(&path).map_err(|e| Error::io("read", &path, e))
    }

    /// Writes a file that only its owner may read.
    fn write(&self, file: &str, text: &str) -> Result<(), Error> {
        write_private(&self.path(file), text)
    }
}

/// Writes a file that only its owner may read.
pub(crate) fn write_private(path: &Path, text: &str) -> Result<(), Error> {
    use std::io::Write;
    let mut options = fs::OpenOptions::new();
    options.create(true).truncate(true).write(true).mode(0o600);
    let mut file = options.open(path).map_err(|e| Error::io("write", path, e))?;
    file.write_all(text.as_bytes()).map_err(|e| Error::io("write", path, e))
}

fn name(user: &str, groups: &[&str]) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, user);
    for group in groups {
        name.push(DnType::OrganizationName, *group);
    }
    name
}
