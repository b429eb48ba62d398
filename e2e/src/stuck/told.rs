//! What `flotilla why` says, for people and for programs, and the commands in it.

use crate::api::text;
use serde_json::Value;
use std::collections::BTreeSet;

/// What `why` names as a cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// Of what it is; of several that are alike, all.
    pub subject: String,
    /// What is the matter.
    pub message: String,
    /// What can be done.
    pub advice: String,
    /// What waits for it.
    pub holds_up: Vec<String>,
    /// The command of the advice that is to be typed; none yet in what was not asked for.
    pub command: String,
}

impl Cause {
    fn of(json: &Value) -> Self {
        let held = json["holdsUp"].as_array().into_iter().flatten();
        Cause {
            subject: text(json, "/subject").to_owned(),
            message: text(json, "/message").to_owned(),
            advice: text(json, "/advice").to_owned(),
            holds_up: held.filter_map(|held| held.as_str().map(str::to_owned)).collect(),
            command: String::new(),
        }
    }

    /// Whether it is of this subject, alone or among others.
    fn is_of(&self, subject: &str) -> bool {
        self.subject == subject || self.subject.split(", ").any(|one| one == subject)
    }

    /// As the lines for people have it, without times: what was written by others stays within its line.
    fn lines(&self) -> String {
        let line = format!("{}: {} | {}", self.subject, self.message, self.advice);
        let mut shown: String = line.chars().flat_map(shown).collect();
        // Of many blanks few are shown, lest they fill a line up.
        while shown.contains("    ") {
            shown = shown.replace("    ", "   ");
        }
        shown
    }
}

fn shown(letter: char) -> Vec<char> {
    if letter.is_control() {
        letter.escape_default().collect()
    } else {
        vec![letter]
    }
}

/// The causes in an answer for programs.
pub(super) fn causes(answer: &Value) -> Vec<Cause> {
    let causes = answer["causes"].as_array().into_iter().flatten();
    causes.map(Cause::of).collect()
}

/// Whether two answers are the same but for times.
pub(super) fn are_alike(before: &[Cause], after: &[Cause]) -> bool {
    before.iter().map(Cause::lines).eq(after.iter().map(Cause::lines))
}

/// Whether the answer for people names the same causes in the same order, with the same advice.
pub(super) fn are_the_same(text: &str, causes: &[Cause]) -> bool {
    let mut told: Vec<String> = Vec::new();
    let waiting = text.lines().skip_while(|line| *line != "waiting:").skip(1);
    for line in waiting.take_while(|line| line.starts_with("  ")) {
        let Some(detail) = line.strip_prefix("      ") else {
            let head = line.trim_start();
            let head = head.rsplit_once(" (for ").map_or(head, |(head, _)| head);
            told.push(format!("{head} | "));
            continue;
        };
        if let (Some(last), Some(advice)) = (told.last_mut(), detail.strip_prefix("you can: ")) {
            last.push_str(advice);
        }
    }
    told == causes.iter().map(Cause::lines).collect::<Vec<_>>()
}

/// What a story expects of one cause.
#[derive(Clone, Copy, Debug)]
pub struct Expected<'e> {
    /// Of what it is.
    pub subject: &'e str,
    /// What its message has.
    pub words: &'e [&'e str],
    /// How the command begins that its advice has.
    pub command: &'e str,
}

/// A cause that a story expects.
pub const fn cause<'e>(subject: &'e str, words: &'e [&'e str], command: &'e str) -> Expected<'e> {
    Expected {
        subject,
        words,
        command,
    }
}

impl Expected<'_> {
    /// The cause, with the command that is to be typed.
    fn of(&self, cause: &Cause) -> Option<Cause> {
        let all = commands(&cause.advice);
        let command = all.into_iter().find(|own| own.starts_with(self.command))?.to_owned();
        let is_it = cause.is_of(self.subject) && self.words.iter().all(|word| cause.message.contains(word));
        is_it.then(|| Cause {
            command,
            ..cause.clone()
        })
    }
}

/// The causes that are expected, in their order, each with its place in the answer, if there are these and no others.
pub(super) fn found(expected: &[Expected<'_>], causes: &[Cause]) -> Option<Vec<(usize, Cause)>> {
    let place = |one: &Expected<'_>| {
        let mut found = causes.iter().enumerate();
        found.find_map(|(place, cause)| Some((place, one.of(cause)?)))
    };
    let found: Vec<(usize, Cause)> = expected.iter().map(place).collect::<Option<_>>()?;
    let places: BTreeSet<usize> = found.iter().map(|(place, _)| *place).collect();
    (places.len() == causes.len()).then_some(found)
}

/// The commands in an advice, with comments that go with them: each follows a colon or a bracket, and ends with its clause.
pub(super) fn commands(advice: &str) -> Vec<&str> {
    let starts = ["kubectl ", "flotilla "].into_iter();
    let mut starts: Vec<usize> = starts
        .flat_map(|program| advice.match_indices(program).map(|(at, _)| at))
        .filter(|at| *at == 0 || advice[..*at].ends_with(": ") || advice[..*at].ends_with('('))
        .collect();
    starts.sort_unstable();
    let of = |at: usize| {
        let rest = &advice[at..];
        let end = [rest.find("; "), rest.find(')')].into_iter().flatten().min();
        &rest[..end.unwrap_or(rest.len())]
    };
    starts.into_iter().map(of).collect()
}

/// A command, word by word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Typed<'c> {
    /// What it does.
    pub(super) verb: &'c str,
    /// To objects of which kind.
    pub(super) kind: &'c str,
    /// To which of them; none for all.
    pub(super) name: Option<&'c str>,
    /// In which namespace.
    pub(super) namespace: Option<&'c str>,
}

impl<'c> Typed<'c> {
    /// # Panics
    /// When a shell would do more than run one program.
    pub(super) fn of(command: &'c str) -> Self {
        let plain = command.split_once("  #").map_or(command, |(plain, _)| plain);
        let is_plain = |c: char| c.is_ascii_alphanumeric() || " -_./=,".contains(c);
        assert!(plain.chars().all(is_plain), "a shell may do anything for {command:?}");
        let mut words: Vec<&str> = plain.split_whitespace().skip(1).collect();
        // `kubectl create secret generic NAME`, and `flotilla rollout undo KIND/NAME`.
        words.retain(|word| !["generic", "rollout"].contains(word));
        let at = words.iter().position(|word| *word == "-n");
        let namespace = at.and_then(|at| words.get(at + 1).copied());
        let own = &words[..words
            .iter()
            .position(|word| word.starts_with('-'))
            .unwrap_or(words.len())];
        let kind = own.get(1).copied().unwrap_or_default();
        let (kind, name) = match kind.split_once('/') {
            Some((kind, name)) => (kind, Some(name)),
            None => (kind, own.get(2).copied()),
        };
        let verb = own.first().copied().unwrap_or_default();
        Typed {
            verb,
            kind: if verb == "logs" { "pod" } else { kind },
            name: if verb == "logs" { own.get(1).copied() } else { name },
            namespace,
        }
    }

    /// Whether it changes nothing.
    pub(super) fn only_looks(&self) -> bool {
        ["get", "describe", "logs"].contains(&self.verb)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn commands_are_taken_as_they_stand() {
        for (advice, expected) in [
            (
                "roll back: flotilla rollout undo statefulset.apps/web -n shop",
                &["flotilla rollout undo statefulset.apps/web -n shop"][..],
            ),
            (
                "delete it: the set wants another revision: kubectl delete pod web-2 -n shop  # its claims go with it, and the data in them",
                &["kubectl delete pod web-2 -n shop  # its claims go with it, and the data in them"],
            ),
            (
                "create it: kubectl create priorityclass high --value=0; or name another (kubectl get priorityclass): kubectl edit cloneset/web -n shop",
                &[
                    "kubectl create priorityclass high --value=0",
                    "kubectl get priorityclass",
                    "kubectl edit cloneset/web -n shop",
                ],
            ),
            ("wait, or ask whoever runs flotilla there", &[]),
        ] {
            assert_eq!(commands(advice), expected);
        }
    }

    #[test]
    fn commands_are_read_word_by_word() {
        for (command, verb, kind, name, namespace) in [
            (
                "kubectl edit statefulset.apps/web -n shop",
                "edit",
                "statefulset.apps",
                Some("web"),
                Some("shop"),
            ),
            (
                "kubectl delete pod a -n shop --force  # it's gone",
                "delete",
                "pod",
                Some("a"),
                Some("shop"),
            ),
            (
                "kubectl create secret generic s -n shop",
                "create",
                "secret",
                Some("s"),
                Some("shop"),
            ),
            (
                "flotilla rollout undo cloneset/web -n shop",
                "undo",
                "cloneset",
                Some("web"),
                Some("shop"),
            ),
            (
                "kubectl logs web-0 -c main -n shop --previous",
                "logs",
                "pod",
                Some("web-0"),
                Some("shop"),
            ),
            (
                "kubectl get pods -L controller-revision-hash -n shop",
                "get",
                "pods",
                None,
                Some("shop"),
            ),
            ("kubectl delete node n-1", "delete", "node", Some("n-1"), None),
        ] {
            let expected = Typed {
                verb,
                kind,
                name,
                namespace,
            };
            assert_eq!(Typed::of(command), expected, "{command}");
        }
    }

    #[test]
    #[should_panic(expected = "a shell may do anything")]
    fn two_commands_in_one_are_no_advice() {
        Typed::of("kubectl get pods && kubectl delete pods --all");
    }

    fn named(subject: &str, message: &str, advice: &str) -> Cause {
        Cause::of(&json!({"subject": subject, "message": message, "advice": advice}))
    }

    #[test]
    fn both_answers_have_to_be_the_same() {
        let causes = [
            named("web-0", "refused: a\nb", "do: kubectl get pods"),
            named("web", "paused", ""),
        ];
        let text = |second: &str| {
            format!(
                "web: 1 ready\nwaiting:\n  web-0: refused: a\\nb (for 1 min 2 s)\n      rule: r\n      \
            you can: do: kubectl get pods\n  {second}\nnext:\n  create pod web-0\n"
            )
        };
        assert!(are_the_same(&text("web: paused"), &causes));
        for other in ["web: paused\n      you can: resume", "web-1: paused", ""] {
            assert!(!are_the_same(&text(other), &causes), "{other}");
        }
    }

    #[test]
    fn all_causes_are_expected_and_no_others() {
        let root = named("web-0", "node lost", "kubectl delete node n");
        let other = named("web-1, web-2", "bad image", "flotilla rollout undo x");
        let expected = [("web-0", "lost", "kubectl delete "), ("web-2", "image", "flotilla ")];
        let is_right = |causes: &[&Cause], expected: &[(&str, &str, &str)]| {
            let causes: Vec<Cause> = causes.iter().copied().cloned().collect();
            let words: Vec<[&str; 1]> = expected.iter().map(|(_, word, _)| [*word]).collect();
            let expected: Vec<Expected<'_>> = expected
                .iter()
                .zip(&words)
                .map(|((subject, _, command), words)| cause(subject, words, command))
                .collect();
            let places: Option<Vec<usize>> =
                found(&expected, &causes).map(|found| found.into_iter().map(|(place, _)| place).collect());
            places.is_some_and(|places| places == (0..causes.len()).collect::<Vec<_>>())
        };
        assert!(is_right(&[&root, &other], &expected));
        for causes in [
            &[&other, &root][..],
            &[&root],
            &[&other],
            &[],
            &[&root, &other, &named("db", "x", "")],
        ] {
            assert!(!is_right(causes, &expected), "{causes:?}");
        }
        for wrong in [
            ("", "lost", "kubectl "),
            ("web", "lost", "kubectl "),
            ("web-0", "gone", "kubectl "),
            ("web-0", "lost", "flotilla "),
        ] {
            assert!(!is_right(&[&root], &[wrong]), "{wrong:?}");
        }
    }
}
