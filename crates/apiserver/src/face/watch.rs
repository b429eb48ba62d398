//! Watches: what happens from a version on, as frames of a stream.

use super::negotiate::Form;
use super::read::{Filter, expired, forbidden, list_options, list_options_kind, metadata_only};
use super::route::Target;
use super::{Asked, set_type, shown, shown_value, table};
use crate::store::{Change, Gone, Server, Stored};
use crate::types::TypeInfo;
use bytes::Bytes;
use flotilla_apimachinery::status::Status;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::Arc;

/// How long a watch lives unless the client says otherwise, in seconds.
const TIMEOUT_SECONDS: u64 = 1800;

/// An open watch. It holds no connection to the server: whoever serves it asks it for frames when something has changed.
#[derive(Debug)]
pub struct Watch {
    info: Arc<TypeInfo>,
    namespace: Option<String>,
    name: Option<String>,
    filter: Filter,
    form: Form,
    /// How rows of a table are made, if it is to be one.
    rows: Option<table::Rows>,
    /// Columns of a table come with the first event only.
    is_first: bool,
    cursor: u64,
    initial: VecDeque<Bytes>,
    is_over: bool,
    /// Whether the client wants to hear of versions at which nothing happened to it.
    pub wants_bookmarks: bool,
    /// After how many seconds the server ends it.
    pub timeout_seconds: u64,
}

pub(super) fn open(server: &Server, asked: &Asked<'_>, target: &Target) -> Result<Watch, Status> {
    let query = &asked.query;
    let version = match query.get("resourceVersion") {
        None => None,
        Some(text) => Some(text.parse::<u64>().map_err(|_| {
            // The real server does not expect it either.
            let why = format!(
                "resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"
            );
            Status::new(500, "", why)
        })?),
    };
    check_options(asked)?;
    let timeout_seconds = query.number("timeoutSeconds")?.filter(|t| *t > 0);
    let mut watch = Watch {
        info: target.info.clone(),
        namespace: target.namespace.clone(),
        name: target.name.clone(),
        filter: Filter::parse(&target.info, query)?,
        form: asked.form,
        rows: match asked.form {
            Form::Table => Some(table::Rows::of(server, asked, &target.info)?),
            _ => None,
        },
        is_first: true,
        cursor: server.version(),
        initial: VecDeque::new(),
        is_over: false,
        wants_bookmarks: query.is_true("allowWatchBookmarks"),
        timeout_seconds: timeout_seconds.map_or(TIMEOUT_SECONDS, |t| t as u64),
    };
    let sends_initial = match query.get("sendInitialEvents") {
        Some(text) => text == "true" || text == "1",
        // What is there comes first also where no version, or any version, is asked for.
        None => version.is_none_or(|version| version == 0),
    };
    if sends_initial {
        watch.begin(server, query.has("sendInitialEvents"));
    } else if let Some(version) = version.filter(|v| *v > 0) {
        watch.cursor = version;
    }
    Ok(watch)
}

fn check_options(asked: &Asked<'_>) -> Result<(), Status> {
    let query = &asked.query;
    let matching = query.get("resourceVersionMatch");
    if query.has("sendInitialEvents") {
        if matching != Some("NotOlderThan") {
            let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            let mut errors = vec![forbidden("resourceVersionMatch", why)];
            errors.extend(matching.map(|other| {
                let allowed = ["NotOlderThan"];
                flotilla_apimachinery::field::Error::not_supported("resourceVersionMatch", other.into(), allowed)
            }));
            return Err(Status::invalid(&list_options_kind(), "", &errors));
        }
    } else if matching.is_some() {
        let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
        return Err(list_options("resourceVersionMatch", why));
    }
    Ok(())
}

impl Watch {
    /// What is there comes as if it were new, and if that was asked for, a bookmark says that it was all.
    fn begin(&mut self, server: &Server, says_end: bool) {
        let (info, namespace) = (self.info.clone(), self.namespace.clone());
        for (key, stored) in server.after(info.store, namespace.as_deref(), None) {
            let is_named = self.name.as_deref().is_none_or(|name| *key.name == *name);
            if is_named && self.filter.matches(&info, stored) {
                let frame = self.frame(server, "ADDED", stored, None);
                self.initial.push_back(frame);
            }
        }
        if says_end && self.wants_bookmarks {
            let annotations = json!({"k8s.io/initial-events-end": "true"});
            let frame = self.bookmark_at(server.version(), Some(annotations));
            self.initial.push_back(frame);
        }
    }

    /// What has happened since the last time, and whether the watch is over.
    pub fn poll(&mut self, server: &Server) -> (Vec<Bytes>, bool) {
        let mut frames: Vec<Bytes> = self.initial.drain(..).collect();
        if self.is_over {
            return (frames, true);
        }
        let changes = match server.watch(self.info.store, self.cursor) {
            Ok(changes) => changes,
            Err(Gone { oldest }) => {
                let status = expired(&format!("too old resource version: {} ({oldest})", self.cursor));
                frames.push(line("ERROR", &status.to_json().to_string()));
                self.is_over = true;
                return (frames, true);
            }
        };
        // One allocation; a change is a few handles.
        let changes: Vec<Change> = changes.cloned().collect();
        for change in changes {
            self.cursor = self.cursor.max(change.version);
            if let Some(frame) = self.of_change(server, &change) {
                frames.push(frame);
            }
        }
        if server
            .types
            .find(&self.info.group, &self.info.version, &self.info.plural)
            .is_none()
        {
            self.is_over = true;
        }
        (frames, self.is_over)
    }

    /// A bookmark: nothing older than the newest version will come.
    pub fn bookmark(&mut self, server: &Server) -> Option<Bytes> {
        self.cursor = self.cursor.max(server.version());
        (self.wants_bookmarks && !self.is_over).then(|| self.bookmark_at(self.cursor, None))
    }

    fn bookmark_at(&self, version: u64, annotations: Option<Value>) -> Bytes {
        let mut object = match self.form {
            Form::Metadata => json!({"metadata": {}}),
            Form::Table => json!({"metadata": {}, "columnDefinitions": null, "rows": []}),
            Form::Plain | Form::Discovery => super::table::empty_object(&self.info),
        };
        match self.form {
            Form::Metadata => {
                object["kind"] = json!("PartialObjectMetadata");
                object["apiVersion"] = json!("meta.k8s.io/v1");
            }
            Form::Table => {
                object["kind"] = json!("Table");
                object["apiVersion"] = json!("meta.k8s.io/v1");
            }
            Form::Plain | Form::Discovery => set_type(&self.info, &mut object),
        }
        object["metadata"]["resourceVersion"] = json!(version.to_string());
        if let Some(annotations) = annotations {
            object["metadata"]["annotations"] = annotations;
        }
        line("BOOKMARK", &object.to_string())
    }

    /// The frame of a change, if it concerns the watch: an object that comes into the selection is added, one that leaves it deleted.
    fn of_change(&mut self, server: &Server, change: &Change) -> Option<Bytes> {
        let key = &change.key;
        if self.namespace.as_deref().is_some_and(|ns| *key.namespace != *ns)
            || self.name.as_deref().is_some_and(|name| *key.name != *name)
        {
            return None;
        }
        let info = self.info.clone();
        let is_in = |stored: &Option<Stored>| stored.as_ref().is_some_and(|s| self.filter.matches(&info, s));
        let (kind, stored) = match (is_in(&change.before), is_in(&change.after)) {
            (false, false) => return None,
            (false, true) => ("ADDED", change.after.as_ref()?),
            (true, true) => ("MODIFIED", change.after.as_ref()?),
            (true, false) => ("DELETED", change.before.as_ref()?),
        };
        let version = (kind == "DELETED").then_some(change.version);
        Some(self.frame(server, kind, stored, version))
    }

    fn frame(&mut self, server: &Server, kind: &str, stored: &Stored, version: Option<u64>) -> Bytes {
        if self.form == Form::Plain && version.is_none() {
            return line(kind, &shown(&self.info, stored));
        }
        let mut value = shown_value(&self.info, stored);
        if let Some(version) = version {
            value["metadata"]["resourceVersion"] = json!(version.to_string());
        }
        let value = match (&self.rows, self.form) {
            (Some(rows), _) => rows.table(server, &value, std::mem::take(&mut self.is_first)),
            (None, Form::Metadata) => metadata_only(&value),
            (None, _) => value,
        };
        line(kind, &value.to_string())
    }
}

fn line(kind: &str, object: &str) -> Bytes {
    Bytes::from(format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n"))
}
