//! CONFIG_DB in a redis server.

use super::{Row, Store, Tables, Write};
use crate::{Failed, Limit, Step, Why};
use ::redis::{Client, Connection, RedisError, RedisResult, cmd, pipe};

/// The number of CONFIG_DB among a switch's databases.
const CONFIG_DB: i64 = 4;
/// SONiC sets it when the startup configuration is in the database.
const INITIALIZED: &str = "CONFIG_DB_INITIALIZED";
/// What redis has in place of a row without fields, which it does not keep.
const NULL: &str = "NULL";

/// A redis server.
pub struct Redis {
    client: Client,
    connection: Option<Connection>,
}

impl Redis {
    /// `address` is `redis://HOST[:PORT]` or `unix:///PATH`. It is not connected to yet.
    ///
    /// # Errors
    /// It is no address, or names a database.
    pub fn new(address: &str) -> Result<Self, String> {
        let told = |error: RedisError| format!("`{address}`: {error}");
        Ok(Self { client: Client::open(address).map_err(told)?, connection: None })
    }

    /// Runs `call`, whose every wait ends at the limit. A connection that failed is given up.
    fn run<T>(
        &mut self,
        limit: &Limit,
        step: Step,
        call: impl FnOnce(&mut Connection) -> RedisResult<T>,
    ) -> Result<T, Failed> {
        let left = limit.left(step)?;
        let taken = self.connection.take();
        let told = |error: RedisError| {
            let why = if error.is_timeout() {
                Why::Late
            } else {
                Why::Refused(format!("redis: {error}"))
            };
            Failed::new(step, why)
        };
        let connect = || {
            let mut connection = self.client.get_connection_with_timeout(left)?;
            connection.set_read_timeout(Some(left))?;
            connection.set_write_timeout(Some(left))?;
            cmd("SELECT").arg(CONFIG_DB).exec(&mut connection)?;
            Ok(connection)
        };
        let mut connection = taken.map_or_else(connect, Ok).map_err(told)?;
        connection.set_read_timeout(Some(left)).map_err(told)?;
        connection.set_write_timeout(Some(left)).map_err(told)?;
        let answer = call(&mut connection).map_err(told)?;
        self.connection = Some(connection);
        Ok(answer)
    }
}

impl Store for Redis {
    fn load(&mut self, tables: &[&str], limit: &Limit, step: Step) -> Result<Tables, Failed> {
        let (is_ready, found) = self.run(limit, step, |connection| {
            let is_ready: Option<String> = cmd("GET").arg(INITIALIZED).query(connection)?;
            let mut found = Tables::default();
            for table in tables {
                let pattern = format!("{table}|*");
                let keys: Vec<String> = cmd("KEYS").arg(pattern).query(connection)?;
                let mut ask = pipe();
                for key in &keys {
                    ask.cmd("HGETALL").arg(key);
                }
                let rows: Vec<Row> =
                    if keys.is_empty() { Vec::new() } else { ask.query(connection)? };
                for (key, mut row) in keys.iter().zip(rows) {
                    row.remove(NULL);
                    found.put(table, &key[table.len() + 1..], row);
                }
            }
            Ok((is_ready.is_some_and(|value| value == "1"), found))
        })?;
        if is_ready {
            return Ok(found);
        }
        let why =
            format!("{INITIALIZED} is not 1: the switch has not loaded its configuration yet");
        Err(Failed::new(step, Why::Refused(why)))
    }

    fn write(&mut self, writes: &[Write], limit: &Limit, step: Step) -> Result<(), Failed> {
        if writes.is_empty() {
            return Ok(());
        }
        let mut all = pipe();
        all.atomic();
        for write in writes {
            let key = format!("{}|{}", write.table, write.key);
            if write.removes_row {
                all.cmd("DEL").arg(&key);
                continue;
            }
            if !write.set.is_empty() {
                let set = all.cmd("HSET").arg(&key);
                for (field, value) in &write.set {
                    set.arg(field).arg(value);
                }
            }
            if !write.clear.is_empty() {
                let clear = all.cmd("HDEL").arg(&key);
                write.clear.iter().for_each(|field| _ = clear.arg(field));
            }
        }
        self.run(limit, step, |connection| all.exec(connection))
    }
}
