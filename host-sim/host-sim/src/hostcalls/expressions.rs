//! Envoy's foreign functions `expr_create`, `expr_evaluate` and `expr_delete`: expressions of CEL over the properties of
//! a stream.

use std::sync::{Arc, LazyLock};

use cel::{
    Context, Env, Value as Cel,
    common::ast::{Expr, IdedExpr},
};

use super::{expression_bounds, expression_values::of_cel, expression_variables, properties::LISTLESS};
use crate::{
    abi::{LogLevel, Status},
    state::VmState,
    wire::property::Value,
};

/// How deep an expression may be nested: the parser's own limit in Envoy.
const MAX_DEPTH: u16 = 32;

/// Functions that an expression may call, beside its operators.
const FUNCTIONS: [&str; 25] = [
    "bool",
    "bytes",
    "contains",
    "double",
    "duration",
    "dyn",
    "endsWith",
    "getDate",
    "getDayOfMonth",
    "getDayOfWeek",
    "getDayOfYear",
    "getFullYear",
    "getHours",
    "getMilliseconds",
    "getMinutes",
    "getMonth",
    "getSeconds",
    "int",
    "matches",
    "size",
    "startsWith",
    "string",
    "timestamp",
    "type",
    "uint",
];

static ENVIRONMENT: LazyLock<Arc<Env>> = LazyLock::new(|| Arc::new(Env::stdlib()));

/// Parses an expression; answers its token.
pub(super) fn create(state: &mut VmState, text: &[u8]) -> Result<Vec<u8>, Status> {
    let parsed = std::str::from_utf8(text).map_err(|_| "no UTF-8".to_owned()).and_then(|text| {
        if let Some(why) = expression_bounds::refuse_text(text) {
            return Err(why.to_owned());
        }
        let parser = ENVIRONMENT.parser().max_recursion_depth(MAX_DEPTH);
        Ok((text, parser.parse(text).map_err(|error| error.to_string())?))
    });
    let (text, expression) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => return Err(refused(state, "parse", &error)),
    };
    let root = state.root_of(state.current);
    let Some(expressions) = state.root(root).map(|root| &mut root.expressions) else {
        return Err(Status::InternalFailure);
    };
    let token = expressions.next;
    expressions.next = token.wrapping_add(1);
    let named = |name: &&str| name.starts_with(|first: char| first.is_ascii_alphabetic());
    let references = expression.references();
    let unknown = references.functions().into_iter().filter(named).find(|name| !FUNCTIONS.contains(name));
    if let Some(unknown) = unknown {
        return Err(refused(state, "compile", &format!("no function is named {unknown:?}")));
    }
    if let Some(why) = expression_bounds::refuse(&expression, text) {
        return Err(refused(state, "compile", why));
    }
    if let Some(root) = state.root(root) {
        root.expressions.by_token.insert(token, expression);
    }
    Ok(token.to_le_bytes().to_vec())
}

fn refused(state: &VmState, what: &str, why: &str) -> Status {
    let message = format!("expr_create {what} error: {why}");
    state.shared.logs.tell(LogLevel::Info, state.name, message);
    Status::BadArgument
}

fn token(argument: &[u8]) -> Result<u32, Status> {
    argument.try_into().map(u32::from_le_bytes).map_err(|_| Status::BadArgument)
}

/// Forgets an expression, if there is one of this token.
pub(super) fn delete(state: &mut VmState, argument: &[u8]) -> Result<Vec<u8>, Status> {
    let token = token(argument)?;
    let root = state.root_of(state.current);
    if let Some(root) = state.root(root) {
        root.expressions.by_token.remove(&token);
    }
    Ok(Vec::new())
}

/// Evaluates an expression for the context whose callback runs; answers its value.
pub(super) fn evaluate(state: &mut VmState, argument: &[u8]) -> Result<Vec<u8>, Status> {
    let token = token(argument)?;
    let root = state.root_of(state.current);
    let expression = state.root(root).and_then(|root| root.expressions.by_token.remove(&token));
    let expression = expression.ok_or(Status::NotFound)?;
    let value = value_of(state, &expression);
    if let Some(root) = state.root(root) {
        root.expressions.by_token.insert(token, expression);
    }
    value?.encode().map(|bytes| bytes.to_vec())
}

fn value_of(state: &mut VmState, expression: &IdedExpr) -> Result<Value, Status> {
    let has_encoding = match &expression.expr {
        Expr::Ident(name) => !LISTLESS.contains(&name.as_bytes()),
        Expr::Call(call) => call.func_name != "type",
        _ => true,
    };
    if !has_encoding {
        return Err(Status::SerializationFailure);
    }
    let mut context = Context::with_env(Arc::clone(&ENVIRONMENT));
    for name in expression.references().variables() {
        if let Some(value) = expression_variables::variable(state, name) {
            context.add_variable_from_value(name, value);
        }
    }
    let value = Cel::resolve(expression, &context).map_err(|_| Status::InternalFailure)?;
    of_cel(value).ok_or(Status::SerializationFailure)
}
