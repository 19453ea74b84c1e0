// SPDX-License-Identifier: GPL-2.0

//! What there is: area objects and their states, blocks, the index, the directory of blocks, pins. Its unsafe
//! code argues from the invariants of these types. Nothing here decides which range a request gets.

pub(crate) mod area;
#[forbid(unsafe_code)]
pub(crate) mod band;
#[forbid(unsafe_code)]
pub(crate) mod block;
#[forbid(unsafe_code)]
pub(crate) mod block_check;
#[forbid(unsafe_code)]
pub(crate) mod block_number;
#[forbid(unsafe_code)]
mod block_units;
#[forbid(unsafe_code)]
mod block_walk;
#[forbid(unsafe_code)]
pub(crate) mod by_band;
pub(crate) mod dir;
#[forbid(unsafe_code)]
pub(crate) mod flush;
#[forbid(unsafe_code)]
pub(crate) mod lack;
pub(crate) mod list;
#[forbid(unsafe_code)]
pub(crate) mod maps;
pub(crate) mod objects;
#[forbid(unsafe_code)]
mod owner;
mod page_map;
pub(crate) mod pins;
pub(crate) mod table;
pub(crate) mod view;
