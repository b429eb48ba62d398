//! `flotilla plan`: what a change would do.
//!
//! The cluster is listed once, the change is read from files or options, and [`flotilla_plan`] does the rest. Nothing is written.

mod lines;
pub(super) mod live;
mod manifests;
mod typos;

use crate::args::{ClusterArgs, LeaseArgs, Output, PlanArgs};
use crate::clock;
use crate::cluster::Cluster;
use crate::error::{Error, Exit};
use crate::leader::leader;
use crate::target::{Target, kind_name, no_definition};
use flotilla_model::lines::visible_json;
use flotilla_model::{ObjectKey, SetKind};
use flotilla_plan::{Change, Edit, Plan, Reach, State, plan};
use manifests::Manifests;
use std::collections::BTreeSet;
use std::io::Write as _;

/// Plans, and tells.
pub async fn run(cluster_args: &ClusterArgs, args: PlanArgs) -> Result<Exit, Error> {
    // What is wrong with the question is told before anything is asked of the cluster.
    let clones = args.gates.clones()?;
    let edits = edits(&args)?;
    let mut manifests = Manifests::read(&args.filename)?;
    let source = Source::open(cluster_args, &args).await?;
    manifests.enter(source.namespace(), cluster_args.namespace.as_deref())?;
    let (mut state, warnings) = source.state(&manifests, args.target.as_ref()).await?;
    state.clones = clones;
    let changes = match &args.target {
        None => manifests.changes.clone(),
        Some(target) => vec![change(&state, source.namespace(), target, edits, args.delete)?],
    };
    let reach = if args.to_the_end {
        Reach::THE_END
    } else {
        Reach::SECONDS
    };
    let mut plan = plan(&state, &changes, reach).map_err(|why| Error::NotPossible(format!("failed to plan: {why}")))?;
    locate(&mut plan, &manifests);
    plan.warnings.extend(warnings);
    plan.warnings.extend(source.doubts(&args.lease, &changes).await);
    plan.leave_out(manifests.others, manifests.unknowns);
    let mut out = std::io::stdout().lock();
    match args.output {
        Output::Text => write!(out, "{}", plan.text())?,
        Output::Json => {
            let text = serde_json::to_string_pretty(&plan).map_err(|why| Error::Output(why.into()))?;
            writeln!(out, "{}", visible_json(&text))?;
        }
    }
    Ok(exit(&plan))
}

/// Tells where in the files stands what is refused, or not known.
fn locate(plan: &mut Plan, manifests: &Manifests) {
    for refusal in &mut plan.refused {
        refusal.place = manifests.place(&refusal.object, &refusal.namespace, None);
        for field in &mut refusal.fields {
            field.place = manifests.place(&refusal.object, &refusal.namespace, Some(&field.field));
        }
    }
    plan.place_unknown_fields(|field| manifests.place(&field.object, &field.namespace, Some(&field.field)));
}

fn exit(plan: &Plan) -> Exit {
    // What was not followed may disrupt pods: no answer is better than a false all-clear.
    if !plan.refused.is_empty() || plan.is_cut_short || !plan.unknowns.is_empty() || !plan.missing.is_empty() {
        return Exit::Failed;
    }
    if plan.disrupts {
        Exit::Disrupts
    } else if plan.is_stopped() {
        Exit::Failed
    } else {
        Exit::Done
    }
}

/// What to look at.
enum Source {
    Live(Cluster),
    Saved(State, String),
}

impl Source {
    async fn open(cluster_args: &ClusterArgs, args: &PlanArgs) -> Result<Self, Error> {
        match &args.from {
            None => Cluster::connect(cluster_args).await.map(Source::Live),
            Some(file) => {
                let namespace = cluster_args.namespace.clone().unwrap_or_else(|| "default".to_owned());
                Ok(Source::Saved(live::saved(file)?, namespace))
            }
        }
    }

    fn namespace(&self) -> &str {
        match self {
            Source::Live(cluster) => &cluster.namespace,
            Source::Saved(_, namespace) => namespace,
        }
    }

    /// What makes it doubtful that a manager carries this out, in sentences.
    async fn doubts(&self, lease: &LeaseArgs, changes: &[Change]) -> Vec<String> {
        let Source::Live(cluster) = self else {
            return Vec::new();
        };
        let now = clock::now();
        let leader = leader(cluster, lease, now).await;
        let doubts: BTreeSet<String> = changes
            .iter()
            .filter_map(|change| leader.doubt(change.target().0, now))
            .collect();
        doubts.into_iter().collect()
    }

    /// The state, with what the files bring along, and what could not be read of it.
    async fn state(&self, manifests: &Manifests, target: Option<&Target>) -> Result<(State, Vec<String>), Error> {
        let mut wanted = manifests.wanted();
        if let Some(target) = target {
            wanted.namespaces.insert(self.namespace().to_owned());
            wanted.clones |= target.kind == Some(SetKind::Clone);
        }
        let (mut state, warnings) = match self {
            Source::Live(cluster) => live::read(cluster, &wanted).await?,
            Source::Saved(state, _) => (state.clone(), Vec::new()),
        };
        state.bring(manifests.brought.iter().cloned());
        Ok((state, warnings))
    }
}

/// What the options ask for.
fn edits(args: &PlanArgs) -> Result<Vec<Edit>, Error> {
    if args.target.is_none() && args.filename.is_empty() {
        let why = "nothing to plan: name a set, as statefulset/NAME, or give manifests with -f";
        return Err(Error::NotPossible(why.to_owned()));
    }
    let mut containers = BTreeSet::new();
    if let Some((twice, _)) = args.set.iter().find(|(container, _)| !containers.insert(container)) {
        let why = format!("--set names {twice} twice; a container has one image");
        return Err(Error::NotPossible(why));
    }
    let image = |(container, image): &(String, String)| {
        let container = Some(container.clone()).filter(|name| name != "image");
        Edit::Image(container, image.clone())
    };
    let mut edits: Vec<Edit> = args.set.iter().map(image).collect();
    edits.extend(args.replicas.map(Edit::Replicas));
    edits.extend(args.partition.map(Edit::Partition));
    if args.target.is_some() && edits.is_empty() && !args.delete {
        let why = "nothing to plan: say what is to change with --set, --replicas, --partition or --delete, or give a manifest with -f";
        return Err(Error::NotPossible(why.to_owned()));
    }
    Ok(edits)
}

/// The change of the set that was meant.
fn change(
    state: &State,
    namespace: &str,
    target: &Target,
    edits: Vec<Edit>,
    is_deletion: bool,
) -> Result<Change, Error> {
    let kinds = [
        (SetKind::Native, "apps"),
        (SetKind::Advanced, "apps.kruise.io"),
        (SetKind::Clone, "apps.kruise.io"),
    ];
    let is_there = |kind: SetKind, group: &str| {
        let mut sets = state.all(group, kind.resource().plural());
        sets.any(|set| set["metadata"]["name"] == target.name.as_str() && set["metadata"]["namespace"] == namespace)
    };
    let meant = kinds
        .into_iter()
        .filter(|(kind, _)| target.kind.map_or(*kind != SetKind::Clone, |wanted| wanted == *kind));
    let found: Vec<SetKind> = meant
        .filter(|(kind, group)| is_there(*kind, group))
        .map(|(kind, _)| kind)
        .collect();
    let kind = match found.as_slice() {
        [kind] => *kind,
        [] => {
            let defined = |kind: SetKind| {
                let name = format!("{}.apps.kruise.io", kind.resource().plural());
                let mut all = state.all("apiextensions.k8s.io", "customresourcedefinitions");
                all.any(|definition| definition["metadata"]["name"] == name.as_str())
            };
            if let Some(kind) = target.kind.filter(|kind| *kind != SetKind::Native && !defined(*kind)) {
                return Err(no_definition(kind, &kind_name(kind, &target.name), namespace));
            }
            let words = match target.kind {
                Some(kind) => kind_name(kind, &target.name),
                None => format!("statefulset/{}", target.name),
            };
            return Err(Error::NotFound {
                target: words,
                namespace: namespace.to_owned(),
            });
        }
        _ => {
            return Err(Error::Ambiguous {
                name: format!("{namespace}/{}", target.name),
            });
        }
    };
    let key = ObjectKey::new(namespace, target.name.as_str());
    Ok(if is_deletion {
        Change::Delete(kind, key)
    } else {
        Change::Edit(kind, key, edits)
    })
}

#[cfg(test)]
mod tests;
