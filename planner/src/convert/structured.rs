//! `google.protobuf.Struct` -> tree. Such a tree has no lines; values are numbered instead, so that problems keep their
//! order.

use prost_types::value::Kind as Proto;
use prost_types::{ListValue, Struct, Value as ProtoValue};

use crate::document::{At, Doubt, Entry, Limits, Map, Node, Path, Value};
use crate::problem::{Kind, Problem};

/// The tree, and doubts about numbers that a double may not hold as they were meant.
pub(super) fn tree(structured: Struct, limits: &Limits) -> Result<(Node<'static>, Vec<Doubt>), Box<Problem>> {
    let mut reader = Reader { limits, next: 0, doubts: Vec::new() };
    let node = reader.map(structured, 1, &Path::root)?;
    Ok((node, reader.doubts))
}

/// Doubles hold whole numbers exactly below this one.
const EXACT: f64 = 9_007_199_254_740_992.0;
/// More doubts than this are not told.
const MOST_DOUBTS: usize = 100;

struct Reader<'l> {
    limits: &'l Limits,
    next: usize,
    doubts: Vec<Doubt>,
}

impl Reader<'_> {
    // Recursion ends at the limit of depth.
    fn node(
        &mut self,
        value: ProtoValue,
        depth: usize,
        path: &dyn Fn() -> Path,
    ) -> Result<Node<'static>, Box<Problem>> {
        let at = self.at();
        let value = match value.kind {
            None | Some(Proto::NullValue(_)) => Value::Null,
            Some(Proto::BoolValue(value)) => Value::Bool(value),
            Some(Proto::StringValue(text)) => Value::String(text.into()),
            Some(Proto::NumberValue(number)) => match number_text(number) {
                Some(text) => {
                    if number.abs() >= EXACT && self.doubts.len() < MOST_DOUBTS {
                        let message = format!(
                            "structured data holds whole numbers exactly only below {EXACT}; {text} may not be what was \
                             meant. Send the design as text, in `design.document`"
                        );
                        self.doubts.push(Doubt { at, field: path().into(), message });
                    }
                    Value::Number(text.into())
                }
                None => {
                    let message = "infinity and not-a-number cannot be sent to Kubernetes";
                    return Err(Box::new(Problem::new(Kind::WrongType, path(), at, message)));
                }
            },
            Some(Proto::StructValue(structured)) => return self.map(structured, depth + 1, path),
            Some(Proto::ListValue(ListValue { values })) => {
                self.check_depth(depth + 1, at, path)?;
                let items = values.into_iter().enumerate();
                let list = items.map(|(index, value)| self.node(value, depth + 1, &|| path().index(index)));
                Value::List(list.collect::<Result<_, _>>()?)
            }
        };
        Ok(Node::new(at, value))
    }

    fn map(
        &mut self,
        structured: Struct,
        depth: usize,
        path: &dyn Fn() -> Path,
    ) -> Result<Node<'static>, Box<Problem>> {
        let at = self.at();
        self.check_depth(depth, at, path)?;
        let mut entries = Vec::with_capacity(structured.fields.len());
        for (key, value) in structured.fields {
            if key.len() > self.limits.key_bytes {
                let message = format!("a key has {} bytes and the limit is {}", key.len(), self.limits.key_bytes);
                return Err(Box::new(Problem::new(Kind::LimitExceeded, path(), at, message)));
            }
            let node = self.node(value, depth, &|| path().key(&key))?;
            entries.push(Entry { key: key.into(), node });
        }
        Ok(Node::new(at, Value::Map(Map(entries))))
    }

    fn at(&mut self) -> At {
        self.next += 1;
        At::new(self.next)
    }

    fn check_depth(&self, depth: usize, at: At, path: &dyn Fn() -> Path) -> Result<(), Box<Problem>> {
        if depth <= self.limits.depth {
            return Ok(());
        }
        let message = format!("maps and lists are nested more than {} levels deep", self.limits.depth);
        Err(Box::new(Problem::new(Kind::LimitExceeded, path(), at, message)))
    }
}

/// A double as JSON writes it: whole numbers without a point as long as they are exact.
fn number_text(number: f64) -> Option<String> {
    if !number.is_finite() {
        return None;
    }
    if number.fract() == 0.0 && number.abs() <= EXACT {
        return Some(format!("{}", number as i64));
    }
    // `{:?}` gives the shortest digits that read back as the same double, with an exponent when it is far out.
    Some(format!("{number:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::to_json;

    #[test]
    fn numbers_are_written_as_json_has_them() {
        let table = [
            (1.0, "1"),
            (-0.5, "-0.5"),
            (1e300, "1e300"),
            (9_007_199_254_740_992.0, "9007199254740992"),
            (1e-7, "1e-7"),
        ];
        for (number, text) in table {
            assert_eq!(number_text(number).as_deref(), Some(text));
        }
        assert_eq!(number_text(f64::NAN), None);
    }

    #[test]
    fn numbers_that_a_double_cannot_hold_are_doubted_by_name() {
        let number = |number| ProtoValue { kind: Some(Proto::NumberValue(number)) };
        let fields =
            [("a".to_owned(), number(9_007_199_254_740_993.0)), ("b".to_owned(), number(-9_007_199_254_740_991.0))];
        let (_, doubts) = tree(Struct { fields: fields.into() }, &Limits::default()).expect("a tree");
        let fields: Vec<_> = doubts.iter().map(|doubt| doubt.field.as_str()).collect();
        assert_eq!(fields, ["a"]);
    }

    #[test]
    fn deep_structs_are_refused() {
        let mut value = ProtoValue { kind: None };
        for _ in 0..300 {
            value = ProtoValue { kind: Some(Proto::ListValue(ListValue { values: vec![value] })) };
        }
        let structured = Struct { fields: [("a".to_owned(), value)].into() };
        let problem = tree(structured, &Limits::default()).expect_err("too deep");
        assert_eq!(problem.kind, Kind::LimitExceeded);
    }

    #[test]
    fn maps_and_lists_are_kept() {
        let list =
            ListValue { values: vec![ProtoValue { kind: Some(Proto::BoolValue(true)) }, ProtoValue { kind: None }] };
        let structured =
            Struct { fields: [("a".to_owned(), ProtoValue { kind: Some(Proto::ListValue(list)) })].into() };
        let (node, doubts) = tree(structured, &Limits::default()).expect("a tree");
        assert_eq!(doubts, []);
        assert_eq!(to_json(&node), r#"{"a":[true,null]}"#);
    }
}
