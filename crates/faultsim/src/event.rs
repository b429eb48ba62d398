//! What happens to managers and their requests, beside what the cluster does by itself.

use crate::spy::Decided;
use flotilla_engine::core::request::{Answer, Request, RequestId};
use flotilla_engine::wire::Object;
use flotilla_model::{ObjectKey, Resource, Uid};
use std::sync::Arc;

/// Names one life of a manager: what was meant for an earlier one reaches nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Life {
    pub(crate) manager: usize,
    pub(crate) life: u32,
}

/// What a request took along from the decision that asked for it.
pub(crate) type Basis = Option<Arc<Decided>>;

/// Something that happens at its time.
#[derive(Debug)]
pub(crate) enum Event {
    /// An item of the schedule.
    Item(usize),
    /// A manager has something to do.
    Advance(Life),
    /// A request leaves its manager.
    Depart(Life, Box<Request>, Basis),
    /// A request reaches the server. Afterwards the answer leaves, unless it is lost.
    Arrive(Life, Box<Request>, Basis, Reply),
    /// An answer reaches its manager.
    Answer(Life, RequestId, Box<Answer>),
    /// A list of a kind reaches the server; the number names the stream.
    List(Life, Resource, u32),
    /// The answer to a list reaches the manager.
    Listed(Life, Resource, u32, Vec<Object>, u64),
    /// A watch brings what has happened.
    Watch(Life, Resource, u32),
    /// A broken watch, or a failed list, begins again.
    Again(Life, Resource, u32),
    /// The time that a manager has to leave is over.
    Left(Life),
    /// A dead manager comes back.
    Start(usize),
    /// A user makes the set anew.
    CreateSet,
    /// A quota or a webhook of others comes to its end.
    AdmissionEnds,
    /// The kubelet of a pod gives all containers their resources again.
    Resizes(ObjectKey),
    /// Others take a new pod away, this incarnation of it.
    Take(ObjectKey, Uid),
    /// Somebody asks what the set waits for.
    AskWhy,
    /// All faults end.
    Calm,
    /// After that: a look whether all is as it should be.
    Look,
}

/// What becomes of the answer to a request that takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// It comes.
    Comes,
    /// It never comes.
    Lost,
    /// Its manager has given it up already.
    Late,
    /// The server answers 504 though it did as asked.
    Timeout,
}
