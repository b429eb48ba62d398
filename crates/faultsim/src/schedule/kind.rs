//! Kinds of faults, by which schedules are asked for.

/// A kind of fault that can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum FaultKind {
    /// Watches lag behind, each kind on its own.
    Lag,
    /// Watches break, and go on, begin anew after 410, repeat, or coalesce events.
    Watch,
    /// Requests or their answers are lost.
    Lost,
    /// The server answers 429 or 5xx.
    Busy,
    /// Somebody else changes objects all the time, so that versions move on.
    Conflict,
    /// The manager dies between two writes and starts from nothing.
    Crash,
    /// Two managers, skewed clocks, and one that is stopped for a while, dies, or leaves in order.
    Failover,
    /// Users edit, scale, roll back, delete, orphan, relabel.
    Users,
    /// Images that cannot be pulled, crash loops, flickering readiness, slow ends, lost nodes.
    Nodes,
    /// A quota, or a webhook of someone else, refuses or changes pods.
    Admission,
    /// Pods of an Advanced set or of a CloneSet are updated in place, some with hooks that users mind.
    InPlace,
    /// Flotilla's own webhooks complete an Advanced set and its pods, and are away for a while.
    Webhook,
    /// Volumes of an Advanced set grow, and growth is taken back; webhooks of others change what its pods mount.
    Storage,
    /// Users ask for pods that the API server refuses: a mount without its volume, or what a policy forbids.
    Template,
    /// Users ask for other ordinals: a start, and some that are not to be used.
    Ordinals,
    /// Pods of an Advanced set start a few at a time, and users scale it.
    Scaling,
    /// Users ask for pods of an Advanced set to be made again.
    MadeAgain,
    /// Whatever is to be changed of one pod is refused, each time: 403, 422, or 500.
    Refusal,
    /// Somebody names the set as the owner of what he stores in another namespace.
    Tenants,
    /// The partition of an Advanced set counts its pods, and users say which of them are to be updated first.
    Unordered,
    /// Updates are paused, and switches turned on and off, also to what nobody can read.
    Switches,
    /// Updates in place have a deadline, on a budget of one.
    Deadline,
    /// Users copy pods of a CloneSet, and change the ids by which pods and claims belong together.
    Copies,
    /// Pods that are updated in place have several containers, and users edit some of them.
    Containers,
    /// Others put finalizers and owners of their own on claims, and raise them by hand.
    Claims,
    /// Pods and revisions of a CloneSet are as an older manager wrote them, and are taken over.
    Older,
    /// Users add claim templates, and take them away.
    ClaimTemplates,
    /// Kubelets give one container of several no other resources.
    Resizes,
    /// Users write huge numbers into a set, under a quota, and take them back.
    Huge,
    /// A webhook of others changes the label by which new pods of a CloneSet name their revision.
    Labels,
    /// Somebody writes notes of grace periods that nobody can read.
    Notes,
    /// Others take each new pod away, by label, by owner, or by deletion.
    Takers,
    /// Users change what becomes of claims when pods are scaled away or the set is deleted, while pods come and go.
    Retention,
    /// Clocks of managers are ahead for a moment, by a minute, an hour or a day, and are set back.
    Clocks,
    /// Users name containers whose images change while their pods serve.
    KeptReady,
    /// Variables of containers refer to metadata of their pods, which users change.
    Environment,
    /// Kubelets put resources off for long, and users say how long they want to wait without being told.
    Deferrals,
    /// Users change labels and annotations of claim templates, which reach the claims of an Advanced set where a switch says so.
    ClaimLabels,
    /// What is wrong at the end of all faults stays so, until whoever asks why is told of it: a template, a quota, a webhook, a lost node.
    Told,
    /// Managers of CloneSets have a gate on by which prepared pods count as updated when others are made.
    Prepared,
    /// Nothing at all, if it is asked for: a rollout that nobody disturbs.
    None,
}

impl FaultKind {
    /// Those that come by chance.
    pub const ALL: [FaultKind; 40] = [
        FaultKind::Lag,
        FaultKind::Watch,
        FaultKind::Lost,
        FaultKind::Busy,
        FaultKind::Conflict,
        FaultKind::Crash,
        FaultKind::Failover,
        FaultKind::Users,
        FaultKind::Nodes,
        FaultKind::Admission,
        FaultKind::InPlace,
        FaultKind::Webhook,
        FaultKind::Storage,
        FaultKind::Template,
        FaultKind::Ordinals,
        FaultKind::Scaling,
        FaultKind::MadeAgain,
        FaultKind::Refusal,
        FaultKind::Tenants,
        FaultKind::Unordered,
        FaultKind::Switches,
        FaultKind::Deadline,
        FaultKind::Copies,
        FaultKind::Containers,
        FaultKind::Claims,
        FaultKind::Older,
        FaultKind::ClaimTemplates,
        FaultKind::Resizes,
        FaultKind::Huge,
        FaultKind::Labels,
        FaultKind::Notes,
        FaultKind::Takers,
        FaultKind::Retention,
        FaultKind::Clocks,
        FaultKind::KeptReady,
        FaultKind::Environment,
        FaultKind::Deferrals,
        FaultKind::ClaimLabels,
        FaultKind::Told,
        FaultKind::Prepared,
    ];

    /// Drawn by luck of its own, so that everything else of a seed is the same with and without it.
    pub(crate) fn has_own_luck(self) -> bool {
        !matches!(
            self,
            FaultKind::Lag
                | FaultKind::Watch
                | FaultKind::Lost
                | FaultKind::Busy
                | FaultKind::Conflict
                | FaultKind::Crash
                | FaultKind::Failover
                | FaultKind::Users
                | FaultKind::Nodes
                | FaultKind::Admission
                | FaultKind::InPlace
                | FaultKind::None
        )
    }

    /// Only CloneSets know of it.
    pub(crate) fn is_of_clone_sets(self) -> bool {
        matches!(
            self,
            FaultKind::Copies | FaultKind::Older | FaultKind::Labels | FaultKind::Prepared
        )
    }

    /// Native sets do not know of it, and CloneSets draw it by luck of its own.
    pub(crate) fn is_of_advanced_sets(self) -> bool {
        matches!(
            self,
            FaultKind::InPlace
                | FaultKind::Webhook
                | FaultKind::Storage
                | FaultKind::Scaling
                | FaultKind::MadeAgain
                | FaultKind::Unordered
                | FaultKind::Deadline
                | FaultKind::Containers
                | FaultKind::ClaimTemplates
                | FaultKind::Resizes
                | FaultKind::Notes
                | FaultKind::KeptReady
                | FaultKind::Environment
                | FaultKind::Deferrals
                | FaultKind::ClaimLabels
        )
    }
}
