//! What can go wrong in a command, and with which code it ends.

use std::process::ExitCode;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It did what was asked; nothing is waited for.
    Done,
    /// It failed.
    Failed,
    /// It answered, and something is still waited for.
    Waiting,
    /// It answered, and the change would disrupt pods.
    Disrupts,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        match exit {
            Exit::Done => ExitCode::SUCCESS,
            Exit::Failed => ExitCode::from(1),
            Exit::Disrupts => ExitCode::from(2),
            Exit::Waiting => ExitCode::from(3),
        }
    }
}

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No runtime.
    #[error("failed to start: {0}")]
    Runtime(std::io::Error),
    /// The reader of our output has gone; not an error of ours.
    #[error("the output was closed")]
    ClosedPipe,
    /// Output could not be written.
    #[error("failed to write the output: {0}")]
    Output(std::io::Error),
    /// No usable configuration.
    #[error("failed to find a cluster: {0}; name one with --kubeconfig or $KUBECONFIG, or run inside a pod")]
    Config(String),
    /// The server cannot be reached.
    #[error("failed to {what}: {cause}; is the API server of this kubeconfig running?")]
    Unreachable {
        /// What was attempted.
        what: String,
        /// What the client said.
        cause: String,
    },
    /// The server said no.
    #[error("failed to {what}: {message}{advice}")]
    Refused {
        /// What was attempted.
        what: String,
        /// The code of the answer.
        code: u16,
        /// What the server said.
        message: String,
        /// What to do next, if we know; begins with a semicolon.
        advice: String,
    },
    /// No such set.
    #[error("{target} was not found in namespace {namespace}; name another with --namespace")]
    NotFound {
        /// What was looked for.
        target: String,
        /// Where.
        namespace: String,
    },
    /// Both kinds have one of that name.
    #[error("{name} is a native and an Advanced StatefulSet; say statefulset.apps/… or statefulset.apps.kruise.io/…")]
    Ambiguous {
        /// Its name.
        name: String,
    },
    /// The server does not let us look.
    #[error("not allowed to {verb} {resource}{place}: to see it, run `kubectl auth can-i {verb} {resource}{option}`")]
    Forbidden {
        /// What was not allowed.
        verb: &'static str,
        /// On what.
        resource: String,
        /// Where, in words.
        place: String,
        /// Where, as an option of kubectl.
        option: String,
    },
    /// Something that a file asks for.
    #[error("{error}; it is named in {place}")]
    Named {
        /// What is wrong.
        error: Box<Error>,
        /// File and line.
        place: String,
    },
    /// What was asked makes no sense for this object.
    #[error("{0}")]
    NotPossible(String),
    /// The manager ended badly.
    #[error("{0}")]
    Manager(String),
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            Error::ClosedPipe
        } else {
            Error::Output(error)
        }
    }
}
