//! A sum for each stored row, over its table, its key and its value. Not against malice: against bits that change
//! where SQLite does not look. Written with the row, compared whenever it is read.

use rusqlite::{Connection, params};

use super::Table;

/// FNV-1a over 64 bits: fixed for ever. A change of one byte always gives another sum.
pub(crate) fn of(table: &str, key: &str, value: &str) -> i64 {
    let parts = [table, key, value];
    let bytes = parts.iter().flat_map(|part| part.bytes().chain([0xff]));
    let sum = bytes
        .fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    sum.cast_signed()
}

/// From version 1, which had none, to version 2: every row that is there gets its sum.
pub(crate) fn add(connection: &Connection, tables: &[Table]) -> rusqlite::Result<()> {
    for table in tables {
        let (name, key) = (table.name, table.key);
        connection.execute_batch(&format!("ALTER TABLE {name} ADD COLUMN sum INTEGER NOT NULL DEFAULT 0"))?;
        let mut read = connection.prepare(&format!("SELECT CAST({key} AS TEXT), value FROM {name}"))?;
        let rows: Vec<(String, String)> =
            read.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<Result<_, _>>()?;
        let mut write = connection.prepare(&format!("UPDATE {name} SET sum = ?2 WHERE {key} = ?1"))?;
        for (key, value) in rows {
            write.execute(params![key, of(name, &key, &value)])?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_is_the_same_for_ever() {
        assert_eq!(of("meta", "next_attempt_id", "7"), -4_779_383_136_820_786_839);
    }

    #[test]
    fn a_value_has_another_sum_under_another_key_or_with_one_bit_changed() {
        let sum = of("slots", "web-1", "{}");
        let others = [of("slots", "web-2", "{}"), of("meta", "web-1", "{}"), of("slots", "web-1", "{|")];
        assert!(others.iter().all(|other| *other != sum));
        assert_ne!(of("slots", "ab", "c"), of("slots", "a", "bc"));
    }
}
