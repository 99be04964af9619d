//! Arithmetic over named numbers: figures use it to read a quantity from a report, claims to combine several
//! quantities.
//!
//! ```text
//!   traffic.payload_bytes.total / ops.store          a quantity of one report
//!   1 - piggyback / baseline                         a combination of quantities, by the names a claim gives its runs
//!   all < select < block                             an order: two or more of them compared
//! ```
//!
//! Four operations, parentheses, `min`, `max` and `abs`; no variables, no loops. Names may hold dots, and
//! minus signs between letters or digits (`gc-read`), so a subtraction has spaces around its sign.

use std::fmt;

use serde::Serialize;

/// A parsed expression.
#[derive(Clone, Debug, PartialEq)]
pub struct Expression {
    text: String,
    root: Node,
}

/// Two or more expressions with signs between them, all of which must hold.
#[derive(Clone, Debug, PartialEq)]
pub struct Order {
    text: String,
    first: Expression,
    rest: Vec<(Sign, Expression)>,
}

/// One sign of an order and the numbers on both sides of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// The left side as text, and its value.
    pub left: (String, f64),
    /// `<`, `<=`, `==`, `>=` or `>`.
    pub sign: &'static str,
    /// The right side as text, and its value.
    pub right: (String, f64),
    /// Whether the sign holds.
    pub holds: bool,
    /// The distance of the sides as a share of the larger one: positive in the direction of the sign,
    /// negative against it. For `==` it is at most 0.
    pub margin: f64,
}

#[derive(Clone, Debug, PartialEq)]
enum Node {
    Number(f64),
    Name(String),
    Negative(Box<Node>),
    Binary(char, Box<Node>, Box<Node>),
    Call(Function, Vec<Node>),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Function {
    Min,
    Max,
    Abs,
}

const FUNCTIONS: &[(&str, Function)] =
    &[("min", Function::Min), ("max", Function::Max), ("abs", Function::Abs)];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Sign {
    Less,
    LessOrEqual,
    Equal,
    GreaterOrEqual,
    Greater,
}

/// Longest text that is parsed, in bytes: each level of parentheses costs stack.
const LONGEST: usize = 1000;

/// Longest first: `<` begins `<=`.
const SIGNS: &[(&str, Sign)] = &[
    ("<=", Sign::LessOrEqual),
    (">=", Sign::GreaterOrEqual),
    ("==", Sign::Equal),
    ("<", Sign::Less),
    (">", Sign::Greater),
];

/// Returns the number of a name, or in a few words why there is none.
pub type Names<'a> = &'a dyn Fn(&str) -> Result<f64, String>;

impl Expression {
    /// Parses `text`.
    ///
    /// # Errors
    /// One line: what was expected, and at which place.
    pub fn parse(text: &str) -> Result<Expression, String> {
        let mut parser = Parser::new(text)?;
        let root = parser.sum()?;
        parser.end()?;
        Ok(Expression { text: text.trim().to_owned(), root })
    }

    /// Its value.
    ///
    /// # Errors
    /// A name has no number, or a divisor is zero.
    pub fn value(&self, names: Names<'_>) -> Result<f64, String> {
        let value = self.root.value(names)?;
        if value.is_finite() { Ok(value) } else { Err(format!("{self} divides by zero")) }
    }

    /// Every name in it.
    pub fn names(&self) -> Vec<&str> {
        let mut names = Vec::new();
        self.root.collect(&mut names);
        names
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Order {
    /// Parses `text`: expressions with `<`, `<=`, `==`, `>=` or `>` between them.
    ///
    /// # Errors
    /// One line: what was expected, and where.
    pub fn parse(text: &str) -> Result<Order, String> {
        let mut parser = Parser::new(text)?;
        let first = parser.side()?;
        let mut rest = Vec::new();
        while let Some(sign) = parser.sign() {
            rest.push((sign, parser.side()?));
        }
        parser.end()?;
        if rest.is_empty() {
            return Err(format!("\"{text}\" compares nothing; expected <, <=, ==, >= or >"));
        }
        Ok(Order { text: text.trim().to_owned(), first, rest })
    }

    /// Every sign with the numbers on both sides; the order holds if all of them do.
    ///
    /// # Errors
    /// A name has no number.
    pub fn compare(&self, names: Names<'_>) -> Result<Vec<Comparison>, String> {
        let mut left = (self.first.text.clone(), self.first.value(names)?);
        let mut all = Vec::with_capacity(self.rest.len());
        for (sign, expression) in &self.rest {
            let right = (expression.text.clone(), expression.value(names)?);
            all.push(sign.compare(left, right.clone()));
            left = right;
        }
        Ok(all)
    }

    /// Every name in it.
    pub fn names(&self) -> Vec<&str> {
        let rest = self.rest.iter().flat_map(|(_, expression)| expression.names());
        self.first.names().into_iter().chain(rest).collect()
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Sign {
    fn compare(self, left: (String, f64), right: (String, f64)) -> Comparison {
        let (a, b) = (left.1, right.1);
        let largest = a.abs().max(b.abs());
        let share = |difference: f64| if largest == 0.0 { 0.0 } else { difference / largest };
        let (holds, margin) = match self {
            Sign::Less => (a < b, share(b - a)),
            Sign::LessOrEqual => (a <= b, share(b - a)),
            Sign::Equal => (a == b, -share((a - b).abs())),
            Sign::GreaterOrEqual => (a >= b, share(a - b)),
            Sign::Greater => (a > b, share(a - b)),
        };
        let sign = SIGNS.iter().find(|(_, sign)| *sign == self).map_or("", |(text, _)| text);
        Comparison { left, sign, right, holds, margin }
    }
}

impl Node {
    fn value(&self, names: Names<'_>) -> Result<f64, String> {
        Ok(match self {
            Node::Number(number) => *number,
            Node::Name(name) => names(name)?,
            Node::Negative(node) => -node.value(names)?,
            Node::Binary(operator, left, right) => {
                let (left, right) = (left.value(names)?, right.value(names)?);
                match operator {
                    '+' => left + right,
                    '-' => left - right,
                    '*' => left * right,
                    _ => left / right,
                }
            }
            Node::Call(function, arguments) => {
                let values = arguments.iter().map(|node| node.value(names)).collect::<Result<Vec<_>, _>>()?;
                match function {
                    Function::Min => values.into_iter().fold(f64::INFINITY, f64::min),
                    Function::Max => values.into_iter().fold(f64::NEG_INFINITY, f64::max),
                    Function::Abs => values[0].abs(),
                }
            }
        })
    }

    fn collect<'a>(&'a self, names: &mut Vec<&'a str>) {
        match self {
            Node::Number(_) => {}
            Node::Name(name) => names.push(name),
            Node::Negative(node) => node.collect(names),
            Node::Binary(_, left, right) => {
                left.collect(names);
                right.collect(names);
            }
            Node::Call(_, arguments) => arguments.iter().for_each(|node| node.collect(names)),
        }
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Result<Parser<'a>, String> {
        if text.len() > LONGEST {
            return Err(format!("an expression of {} bytes; at most {LONGEST}", text.len()));
        }
        Ok(Parser { text, at: 0 })
    }

    /// One side of an order, with its text.
    fn side(&mut self) -> Result<Expression, String> {
        let start = self.at;
        let root = self.sum()?;
        Ok(Expression { text: self.text[start..self.at].trim().to_owned(), root })
    }

    fn sum(&mut self) -> Result<Node, String> {
        let mut left = self.product()?;
        while let Some(operator) = self.one_of("+-") {
            left = Node::Binary(operator, Box::new(left), Box::new(self.product()?));
        }
        Ok(left)
    }

    fn product(&mut self) -> Result<Node, String> {
        let mut left = self.factor()?;
        while let Some(operator) = self.one_of("*/") {
            left = Node::Binary(operator, Box::new(left), Box::new(self.factor()?));
        }
        Ok(left)
    }

    fn factor(&mut self) -> Result<Node, String> {
        if self.one_of("-").is_some() {
            return Ok(Node::Negative(Box::new(self.factor()?)));
        }
        if self.one_of("(").is_some() {
            let node = self.sum()?;
            self.expect(')')?;
            return Ok(node);
        }
        let word = self.word();
        match word.chars().next() {
            None => Err(self.wrong("a number or a name")),
            Some(first) if first.is_ascii_digit() => {
                word.parse().map(Node::Number).map_err(|_| format!("\"{word}\" is no number"))
            }
            Some(_) => self.name(word),
        }
    }

    fn name(&mut self, word: String) -> Result<Node, String> {
        if self.one_of("(").is_none() {
            return Ok(Node::Name(word));
        }
        let Some((_, function)) = FUNCTIONS.iter().find(|(name, _)| *name == word) else {
            return Err(format!("no function {word}; there are min, max, abs"));
        };
        let mut arguments = vec![self.sum()?];
        while self.one_of(",").is_some() {
            arguments.push(self.sum()?);
        }
        self.expect(')')?;
        if *function == Function::Abs && arguments.len() != 1 {
            return Err("abs takes one argument".into());
        }
        Ok(Node::Call(*function, arguments))
    }

    /// Letters, digits, `_`, `.`, and `-` between letters or digits.
    fn word(&mut self) -> String {
        self.skip_space();
        let rest = &self.text[self.at..];
        let inside = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
        let mut length = 0;
        for (index, c) in rest.char_indices() {
            let next = rest[index + c.len_utf8()..].chars().next();
            let joins = c == '-' && length > 0 && next.is_some_and(|c| c.is_ascii_alphanumeric());
            if !inside(c) && !joins {
                break;
            }
            length = index + c.len_utf8();
        }
        self.at += length;
        rest[..length].to_owned()
    }

    fn sign(&mut self) -> Option<Sign> {
        self.skip_space();
        let (text, sign) = SIGNS.iter().find(|(text, _)| self.text[self.at..].starts_with(text))?;
        self.at += text.len();
        Some(*sign)
    }

    fn one_of(&mut self, set: &str) -> Option<char> {
        self.skip_space();
        let next = self.text[self.at..].chars().next().filter(|c| set.contains(*c))?;
        self.at += next.len_utf8();
        Some(next)
    }

    fn expect(&mut self, wanted: char) -> Result<(), String> {
        match self.one_of(&wanted.to_string()) {
            Some(_) => Ok(()),
            None => Err(self.wrong(&format!("\"{wanted}\""))),
        }
    }

    fn end(&mut self) -> Result<(), String> {
        self.skip_space();
        if self.at == self.text.len() { Ok(()) } else { Err(self.wrong("an operator")) }
    }

    fn skip_space(&mut self) {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
    }

    fn wrong(&self, expected: &str) -> String {
        let rest = &self.text[self.at..];
        let found = if rest.is_empty() { "the end".to_owned() } else { format!("\"{rest}\"") };
        format!("\"{}\": expected {expected}, found {found}", self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(name: &str) -> Result<f64, String> {
        match name {
            "a" => Ok(8.0),
            "b.c" => Ok(2.0),
            "gc-read" => Ok(3.0),
            _ => Err(format!("no {name}")),
        }
    }

    fn value(text: &str) -> Result<f64, String> {
        Expression::parse(text)?.value(&names)
    }

    #[test]
    fn arithmetic_has_its_usual_order() {
        assert_eq!(value("1 - b.c / a"), Ok(0.75));
        assert_eq!(value("(1 + a) * -b.c"), Ok(-18.0));
        assert_eq!(value("a - b.c - 1"), Ok(5.0));
        assert_eq!(value("a / b.c / 2"), Ok(2.0));
        assert_eq!(value("gc-read - 1e1"), Ok(-7.0));
        assert_eq!(value("max(a, b.c) + min(1, 2, 0.5) + abs(-2)"), Ok(10.5));
    }

    #[test]
    fn orders_hold_as_a_chain() {
        let compare = |text| Order::parse(text).unwrap().compare(&names).unwrap();
        let holds = |text| compare(text).iter().all(|one| one.holds);
        assert!(holds("b.c < gc-read < a"));
        assert!(!holds("b.c < a < gc-read"));
        assert!(holds("a == 4 * b.c >= 8"));
        assert!(!holds("a > 8"));
        assert_eq!(Order::parse("b.c <= a").unwrap().names(), ["b.c", "a"]);
        let [first, second] = &compare("a > 2 * b.c <= gc-read")[..] else { panic!("two signs") };
        assert_eq!((&first.left, first.sign), (&("a".to_owned(), 8.0), ">"));
        assert_eq!((&first.right, first.holds, first.margin), (&("2 * b.c".to_owned(), 4.0), true, 0.5));
        assert_eq!((&second.left, second.holds, second.margin), (&first.right, false, -0.25));
        assert_eq!((compare("a == 8")[0].margin, compare("a == 4")[0].margin), (0.0, -0.5));
    }

    #[test]
    fn what_is_wrong_is_one_line() {
        let wrong = |text| value(text).unwrap_err();
        assert_eq!(wrong("a +"), "\"a +\": expected a number or a name, found the end");
        assert_eq!(wrong("(a"), "\"(a\": expected \")\", found the end");
        assert_eq!(wrong("a b"), "\"a b\": expected an operator, found \"b\"");
        assert_eq!(wrong("1.2.3"), "\"1.2.3\" is no number");
        assert_eq!(wrong("ln(a)"), "no function ln; there are min, max, abs");
        assert_eq!(wrong("abs(1, 2)"), "abs takes one argument");
        assert_eq!(wrong("x"), "no x");
        assert_eq!(wrong("a / (gc-read - 3)"), "a / (gc-read - 3) divides by zero");
        assert!(Order::parse("a").is_err());
        assert!(Expression::parse("é").is_err());
    }
}
