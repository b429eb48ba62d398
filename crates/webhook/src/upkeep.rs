//! Keeps certificates and registrations as they should be: looks every few seconds, decides by pure functions, writes what differs.
//!
//! Only whoever holds the manager's lease writes. The bundle reaches the registrations before anything is served that needs it: each
//! look takes at most one step of a change, and ends with the registrations.

mod calls;
mod directory;

use crate::certificates::{self, Decision, Stored, serving_ends, serving_key};
use crate::registrations::{self, Facts};
use crate::serve::Shared;
use crate::{Options, probe};
use calls::Calls;
use flotilla_engine::io::fence::Fence;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// The shortest pause after a look that failed.
const PAUSE_MIN: Duration = Duration::from_millis(100);

pub(crate) struct Upkeep {
    options: Options,
    calls: Calls,
    fence: Fence,
    shared: Arc<Shared>,
    /// What is being shown.
    shown: Option<Stored>,
    /// What was said last to be in the way, so that it is said once.
    complaint: Option<String>,
    probes: u64,
}

impl Upkeep {
    pub(crate) fn new(options: Options, client: kube::Client, fence: Fence, shared: Arc<Shared>) -> Self {
        let calls = Calls::new(client, fence.clone());
        Upkeep {
            options,
            calls,
            fence,
            shared,
            shown: None,
            complaint: None,
            probes: 0,
        }
    }

    /// Until it is dropped.
    pub(crate) async fn run(mut self) {
        let pause_max = self.options.lifetimes.look_every();
        let mut pause = PAUSE_MIN;
        loop {
            let looked = self.look().await;
            // What is in the way at first goes soon: the lease, another replica that makes certificates, a service without endpoints.
            pause = if looked.is_ok() {
                pause_max
            } else {
                (pause * 2).min(pause_max)
            };
            self.complain(looked.err());
            tokio::time::sleep(pause).await;
        }
    }

    fn complain(&mut self, complaint: Option<String>) {
        if self.complaint == complaint {
            return;
        }
        match &complaint {
            Some(why) => tracing::warn!("webhooks: {why}; trying again"),
            None => tracing::info!("webhooks: what was in the way is so no more"),
        }
        self.complaint = complaint;
    }

    async fn look(&mut self) -> Result<(), String> {
        let stored = match &self.options.tls_directory {
            Some(directory) => directory::read(directory).await?,
            None => self.secret().await?,
        };
        self.show(&stored)?;
        if self.fence.may_write() {
            self.register(&stored.authorities).await?;
        }
        Ok(())
    }

    /// What the Secret holds, after whatever is due has been done about it.
    async fn secret(&mut self) -> Result<Stored, String> {
        let names = [self.options.place.host()];
        // Whoever looks at a certificate has the true time.
        let (now, lifetimes) = (self.fence.clock().wall(), self.options.lifetimes);
        let (stored, version) = self.calls.read_secret(&self.options.namespace).await?;
        if !self.fence.may_write() {
            return stored
                .ok_or_else(|| "there are no certificates yet; whoever holds the lease makes them".to_owned());
        }
        let decision = certificates::decide(stored.as_ref(), &names, &lifetimes, now);
        let next = certificates::renew(&decision, stored.as_ref(), &names, &lifetimes, now)
            .map_err(|why| format!("failed to make certificates: {why}"))?;
        let Some(next) = next else {
            return Ok(stored.unwrap_or_default());
        };
        self.calls
            .write_secret(&self.options.namespace, &next, version.as_deref())
            .await?;
        self.shared.metrics.certificate_changed(report(&decision));
        Ok(next)
    }

    fn show(&mut self, stored: &Stored) -> Result<(), String> {
        let is_shown = |shown: &Stored| (&shown.serving, &shown.serving_key) == (&stored.serving, &stored.serving_key);
        if self.shown.as_ref().is_some_and(is_shown) {
            return Ok(());
        }
        let key = serving_key(stored).map_err(|why| format!("the certificate cannot be used: {why}"))?;
        self.shared.show(key);
        self.shared
            .metrics
            .certificate_ends(serving_ends(stored).map_or(0, |end| end.as_millis() / 1000));
        self.shown = Some(stored.clone());
        Ok(())
    }

    /// Writes what the API server is told, where it differs, once the endpoint has been seen to answer.
    async fn register(&mut self, bundle: &str) -> Result<(), String> {
        let mut definitions = Vec::new();
        for name in registrations::DEFINITIONS {
            let path = calls::definition_path(name);
            definitions.extend(self.calls.get(&path).await?.map(|definition| (path, definition)));
        }
        let facts = Facts {
            place: &self.options.place,
            bundle,
            namespace: &self.options.namespace,
            only_namespace: self.options.only_namespace.as_deref(),
            has_sets: !definitions.is_empty(),
        };
        let mut differing = Vec::new();
        for wanted in registrations::configurations(&facts) {
            let path = calls::configuration_path(&wanted);
            let stored = self.calls.get(&path).await?;
            if !stored.is_some_and(|stored| registrations::is_as_wanted(&stored, &wanted)) {
                differing.push((path, wanted));
            }
        }
        let mut unserved = Vec::new();
        for (path, definition) in &definitions {
            let conversion = registrations::conversion(definition, &self.options.place, bundle);
            if let Some(wanted) = conversion.filter(|wanted| !registrations::is_as_wanted(definition, wanted)) {
                differing.push((path.clone(), wanted));
            }
            let versions = registrations::unserved(definition);
            if !versions.is_empty() {
                unserved.push((path, versions));
            }
        }
        if differing.is_empty() && unserved.is_empty() {
            return Ok(());
        }
        self.probes += 1;
        let uid = format!("flotilla-probe-{}-{}", std::process::id(), self.probes);
        probe::answers(&self.options.place, bundle, &uid).await?;
        for (path, wanted) in differing {
            self.apply(&path, &wanted).await?;
        }
        for (path, versions) in unserved {
            // Old versions are served last, when their objects can be converted.
            self.calls.serve_versions(path, &versions).await?;
        }
        Ok(())
    }

    async fn apply(&self, path: &str, wanted: &Value) -> Result<(), String> {
        let object = match wanted["kind"].as_str() {
            Some("MutatingWebhookConfiguration") => "mutating",
            Some("ValidatingWebhookConfiguration") => "validating",
            _ => "conversion",
        };
        let applied = self.calls.apply(path, wanted).await;
        self.shared.metrics.registered(object, applied.is_ok());
        applied?;
        tracing::info!(object, "told the API server where webhooks are served");
        Ok(())
    }
}

/// Says what is being done, and names it for metrics.
fn report(decision: &Decision) -> &'static str {
    match decision {
        Decision::Keep(_) => "keep",
        Decision::Serving(reason) => {
            tracing::info!(%reason, "signed a serving certificate for webhooks");
            "serving"
        }
        Decision::Authority(reason) => {
            tracing::info!(%reason, "made another authority for webhooks; the former one is trusted for a while");
            "authority"
        }
        Decision::Forget => {
            tracing::info!("the former authority of webhooks is not trusted any more");
            "forget"
        }
        Decision::Replace(certificates::Reason::Missing) => {
            tracing::info!("made certificates for webhooks");
            "replace"
        }
        Decision::Replace(reason) => {
            tracing::warn!(%reason, "replaced the stored certificates of webhooks");
            "replace"
        }
    }
}

#[cfg(test)]
mod tests;
