//! Short forms of run IDs, for people.

use uuid::Uuid;

/// Number of characters of a short ID.
pub const SHORT_ID_LEN: usize = 8;

/// Minimum number of characters of the beginning of an ID in a look-up: fewer would find a run by chance.
pub const MIN_ID_BEGINNING: usize = 4;

/// Returns the last characters of an ID, which are random: IDs begin with the time, so runs that started together begin alike.
///
/// ```
/// use homing_core::short_id::short_id;
///
/// let id = uuid::uuid!("019a8f3e-77c1-7d05-9f4e-5b1c3fa9c2d1");
/// assert_eq!(short_id(id), "3fa9c2d1");
/// ```
pub fn short_id(id: Uuid) -> String {
    let whole = id.to_string();
    whole[whole.len() - SHORT_ID_LEN..].to_owned()
}
