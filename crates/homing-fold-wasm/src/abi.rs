//! The functions that the browser calls. Each instance of the module holds one tree. Input is written to [`input`]'s buffer,
//! and every other function returns the length of the JSON that [`output`] points to.
#![allow(
    unsafe_code,
    reason = "exported functions keep their names only with `no_mangle`; nothing here is unsafe otherwise"
)]

use std::cell::RefCell;

use serde::Serialize;
use uuid::Uuid;

use crate::Viewer;

#[derive(Default)]
struct State {
    viewer: Viewer,
    input: Vec<u8>,
    output: Vec<u8>,
}

thread_local! {
    static STATE: RefCell<State> = RefCell::default();
}

#[derive(Serialize)]
struct Failure {
    error: String,
}

/// Makes room for `len` bytes of input and returns their address.
#[unsafe(no_mangle)]
pub extern "C" fn input(len: usize) -> *mut u8 {
    STATE.with_borrow_mut(|state| {
        state.input.clear();
        state.input.resize(len, 0);
        state.input.as_mut_ptr()
    })
}

/// Returns the address of the last answer.
#[unsafe(no_mangle)]
pub extern "C" fn output() -> *const u8 {
    STATE.with_borrow(|state| state.output.as_ptr())
}

/// Takes in the records of the input; see [`Viewer::push`].
#[unsafe(no_mangle)]
pub extern "C" fn push() -> usize {
    answer(|viewer, input| viewer.push(input).map(json))
}

/// Answers with the state after `position` records; see [`Viewer::view`].
#[unsafe(no_mangle)]
pub extern "C" fn view(position: u32) -> usize {
    answer(|viewer, _| Ok(json(viewer.view(position.into()))))
}

/// Answers with the records of the run whose ID is the input, among the first `position`.
#[unsafe(no_mangle)]
pub extern "C" fn facts(position: u32) -> usize {
    answer(|viewer, input| {
        let run = Uuid::try_parse_ascii(input).map_err(|error| error.to_string())?;
        Ok(json(viewer.facts(run, position.into())))
    })
}

/// Answers with the last of the first `position` records in words.
#[unsafe(no_mangle)]
pub extern "C" fn mark(position: u32) -> usize {
    answer(|viewer, _| Ok(json(viewer.mark(position.into()))))
}

fn json(value: impl Serialize) -> Vec<u8> {
    serde_json::to_vec(&value).unwrap_or_else(|error| failure(error.to_string()))
}

fn failure(error: String) -> Vec<u8> {
    serde_json::to_vec(&Failure { error }).unwrap_or_default()
}

fn answer(make: impl FnOnce(&mut Viewer, &[u8]) -> Result<Vec<u8>, String>) -> usize {
    STATE.with_borrow_mut(|state| {
        state.output = make(&mut state.viewer, &state.input).unwrap_or_else(failure);
        state.input = Vec::new();
        state.output.len()
    })
}
