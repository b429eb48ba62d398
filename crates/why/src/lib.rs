//! Why a set waits, and what helps.
//!
//! A [`Question`] is decided with the functions with which the manager decides ([`Question::decide`]). What these would do next is tried as
//! dry runs by whoever asks ([`trials`], [`Tried`]), because only the API server knows quotas, policies and missing service accounts. What
//! then waits ([`Question::held`]) is told with its causes ([`Report`]), once the objects that tell of them were read ([`Facts`]).
//!
//! Nothing here has an effect: whoever asks reads the cluster and sends the dry runs. `flotilla why` asks an API server, the simulator of faults a simulated one.

mod back;
mod causes;
mod facts;
mod leader;
mod next;
mod old;
mod pods;
mod question;
mod report;
mod roots;
mod set;
mod told;
mod trial;

pub use self::causes::Cause;
pub use self::facts::Facts;
pub use self::leader::Leader;
pub use self::question::{Held, Question};
pub use self::report::{Beside, Report, ago};
pub use self::set::{LiveSet, PARTITION_OF_ALL, terminating_namespace};
pub use self::trial::{ROUNDS, Trial, Tried, trials};
