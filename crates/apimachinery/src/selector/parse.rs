//! The grammar of `?labelSelector=`.
//!
//! A line-by-line counterpart of the parser in `k8s.io/apimachinery/pkg/labels/selector.go`, because clients show its errors.

use super::label::{Operator, Requirement, key_error};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Word,
    Symbol,
    End,
    Unreadable,
}

#[derive(Clone, Debug)]
struct Token {
    kind: Kind,
    text: String,
}

impl Token {
    fn is(&self, symbol: &str) -> bool {
        self.kind == Kind::Symbol && self.text == symbol
    }
}

const SYMBOLS: &[&str] = &["==", "!=", "=", "!", "(", ")", ",", ">", "<"];

fn is_special(c: char) -> bool {
    matches!(c, '=' | '!' | '(' | ')' | ',' | '>' | '<')
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n')
}

fn tokens(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start_matches(is_blank);
    while let Some(first) = rest.chars().next() {
        let (kind, length) = if is_special(first) {
            match SYMBOLS.iter().find(|s| rest.starts_with(**s)) {
                Some(symbol) => (Kind::Symbol, symbol.len()),
                None => (Kind::Unreadable, first.len_utf8()),
            }
        } else {
            (
                Kind::Word,
                rest.find(|c| is_special(c) || is_blank(c)).unwrap_or(rest.len()),
            )
        };
        tokens.push(Token {
            kind,
            text: rest[..length].to_owned(),
        });
        rest = rest[length..].trim_start_matches(is_blank);
    }
    tokens.push(Token {
        kind: Kind::End,
        text: String::new(),
    });
    tokens
}

struct Parser {
    tokens: Vec<Token>,
    position: usize,
}

impl Parser {
    fn look(&self) -> &Token {
        &self.tokens[self.position.min(self.tokens.len() - 1)]
    }

    fn next(&mut self) -> Token {
        let token = self.look().clone();
        self.position += 1;
        token
    }

    fn starts_requirement(&self) -> bool {
        self.look().kind == Kind::Word || self.look().is("!")
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let mut token = self.next();
        let is_negated = token.is("!");
        if is_negated {
            token = self.next();
        }
        if token.kind != Kind::Word {
            return Err(format!("found '{}', expected: identifier", token.text));
        }
        if let Some(error) = key_error("<nil>", &token.text) {
            return Err(error.to_string());
        }
        if is_negated {
            return Requirement::new(&token.text, Operator::DoesNotExist, Vec::new());
        }
        if self.look().kind == Kind::End || self.look().is(",") {
            return Requirement::new(&token.text, Operator::Exists, Vec::new());
        }
        let operator = self.operator()?;
        let values = match operator {
            Operator::In | Operator::NotIn => self.values()?,
            _ => vec![self.exact_value()?],
        };
        Requirement::new(&token.text, operator, values)
    }

    fn operator(&mut self) -> Result<Operator, String> {
        let token = self.next();
        Ok(match token.text.as_str() {
            "in" => Operator::In,
            "notin" => Operator::NotIn,
            "=" | "==" => Operator::Equals,
            "!=" => Operator::NotEquals,
            ">" => Operator::GreaterThan,
            "<" => Operator::LessThan,
            other => return Err(format!("found '{other}', expected: in, notin, =, ==, !=, gt, lt")),
        })
    }

    fn values(&mut self) -> Result<Vec<String>, String> {
        let open = self.next();
        if !open.is("(") {
            return Err(format!("found '{}' expected: '('", open.text));
        }
        if self.look().is(")") {
            self.next();
            return Ok(vec![String::new()]);
        }
        if self.look().kind != Kind::Word && !self.look().is(",") {
            return Err(format!(
                "found '{}', expected: ',', ')' or identifier",
                self.look().text
            ));
        }
        self.value_list()
    }

    /// The values up to the closing parenthesis. Nothing between commas is the empty value.
    fn value_list(&mut self) -> Result<Vec<String>, String> {
        let mut values = Vec::new();
        loop {
            let token = self.next();
            if token.kind == Kind::Word {
                values.push(token.text);
                if self.look().is(")") {
                    self.next();
                    return Ok(values);
                }
                if !self.look().is(",") {
                    return Err(format!("found '{}', expected: ',' or ')'", self.look().text));
                }
            } else if token.is(",") {
                if values.is_empty() || self.look().is(",") || self.look().is(")") {
                    values.push(String::new());
                }
                if self.look().is(")") {
                    self.next();
                    return Ok(values);
                }
            } else {
                return Err(format!("found '{}', expected: ',', or identifier", token.text));
            }
        }
    }

    fn exact_value(&mut self) -> Result<String, String> {
        if self.look().kind == Kind::End || self.look().is(",") {
            return Ok(String::new());
        }
        let token = self.next();
        if token.kind != Kind::Word {
            return Err(format!("found '{}', expected: identifier", token.text));
        }
        Ok(token.text)
    }
}

/// The requirements of a text, in its order.
pub(super) fn requirements(text: &str) -> Result<Vec<Requirement>, String> {
    let mut parser = Parser {
        tokens: tokens(text),
        position: 0,
    };
    let mut requirements = Vec::new();
    loop {
        if parser.look().kind == Kind::End {
            return Ok(requirements);
        }
        if !parser.starts_requirement() {
            return Err(format!(
                "found '{}', expected: !, identifier, or 'end of string'",
                parser.look().text
            ));
        }
        let requirement = parser
            .requirement()
            .map_err(|e| format!("unable to parse requirement: {e}"))?;
        requirements.push(requirement);
        let token = parser.next();
        if token.kind == Kind::End {
            return Ok(requirements);
        }
        if !token.is(",") {
            return Err(format!("found '{}', expected: ',' or 'end of string'", token.text));
        }
        if !parser.starts_requirement() {
            return Err(format!(
                "found '{}', expected: identifier after ','",
                parser.look().text
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Messages recorded from `GET /api/v1/pods?labelSelector=…` of kube-apiserver 1.36.
    #[test]
    fn what_cannot_be_read_is_refused_in_the_words_of_the_api_server() {
        for (text, words) in [
            ("app=web,", "found '', expected: identifier after ','"),
            (",app", "found ',', expected: !, identifier, or 'end of string'"),
            (
                "app web",
                "unable to parse requirement: found 'web', expected: in, notin, =, ==, !=, gt, lt",
            ),
            ("app in web", "unable to parse requirement: found 'web' expected: '('"),
            (
                "app in (a b)",
                "unable to parse requirement: found 'b', expected: ',' or ')'",
            ),
            (
                "app in (=)",
                "unable to parse requirement: found '=', expected: ',', ')' or identifier",
            ),
            ("app==)", "unable to parse requirement: found ')', expected: identifier"),
            ("!=a", "found '!=', expected: !, identifier, or 'end of string'"),
            (
                "a>b",
                "unable to parse requirement: values[0]: Invalid value: \"b\": for 'Gt', 'Lt' operators, the value must be an integer",
            ),
            (
                "a=not_valid_",
                "unable to parse requirement: values[0][a]: Invalid value: \"not_valid_\": a valid label must be an empty string or \
                 consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character \
                 (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is \
                 '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
            ),
            (
                "a/b/c=1",
                "unable to parse requirement: <nil>: Invalid value: \"a/b/c\": a valid label key must consist of alphanumeric \
                 characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  \
                 or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS \
                 subdomain prefix and '/' (e.g. 'example.com/MyName')",
            ),
        ] {
            assert_eq!(requirements(text).unwrap_err(), words, "{text}");
        }
    }
}
