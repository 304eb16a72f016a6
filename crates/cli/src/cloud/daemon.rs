//! The controller itself, its tokens and its backups.

use super::{connect, done};
use crate::args::{self, Connection, ControllerCommand, Token};
use crate::log_to_stderr;
use crate::output::{errln, outln};
use anyhow::{Context as _, Result, bail};
use hyper::Method;
use serde_json::json;
use std::fs::{self, OpenOptions};
use std::io::{BufReader, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use weir_controller::daemon::{self, Made};
use weir_controller::store::backup;
use weir_study::table::Grid;

/// `weir controller`.
pub(crate) fn controller(args: &args::Controller) -> Result<u8> {
    let Some(ControllerCommand::Init { config, client, listen, names, data }) = &args.init else {
        log_to_stderr();
        return daemon::run(&args.config).map(|()| 0);
    };
    let Made { config: made, client, authority } =
        daemon::init(config, client, *listen, names, data)?;
    if let Some(made) = made {
        outln!("made {}: the controller's configuration", made.display())?;
    }
    outln!("made {}: the first operator's token; keep it secret", client.display())?;
    outln!("made {}: clients on other machines need a copy", authority.display())?;
    outln!("now start it: weir controller --config {}", config.display())?;
    Ok(0)
}

/// `weir token`.
pub(crate) fn token(token: &Token) -> Result<u8> {
    match token {
        Token::Create { name, role, tenant, connection } => {
            let wanted = json!({"name": name, "role": role, "tenant": tenant});
            let reply = connect(connection)?.send(Method::POST, "/api/v1/tokens", &wanted)?;
            let made = done(&reply)?;
            outln!("{}", made["token"].as_str().unwrap_or_default())?;
            errln!("the token is shown once: the controller keeps only its hash");
        }
        Token::List { connection } => {
            let list = done(&connect(connection)?.get("/api/v1/tokens")?)?;
            let mut grid = Grid::new(&["NAME", "ROLE", "TENANT", "CREATED", "EXPIRES"], 5);
            for item in list["items"].as_array().into_iter().flatten() {
                let cell = |key: &str| item[key].as_str().unwrap_or("–").to_owned();
                let keys = ["name", "role", "tenant", "created", "expires"];
                grid.rows.push(keys.map(cell).to_vec());
            }
            outln!("{}", grid.table())?;
        }
        Token::Delete { name, connection } => {
            let path = format!("/api/v1/tokens/{name}");
            done(&connect(connection)?.ask(Method::DELETE, &path, &[], "")?)?;
            outln!("deleted token {name}")?;
        }
    }
    Ok(0)
}

/// `weir backup`.
pub(crate) fn backup(file: &Path, connection: &Connection) -> Result<u8> {
    let mut client = connect(connection)?;
    let mut answer = client.begin(Method::GET, "/api/v1/backup", &[], "".into())?;
    if answer.status != 200 {
        bail!(
            "the controller refuses with status {}: only an operator takes backups",
            answer.status
        );
    }
    let mut to = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(file)
        .with_context(|| format!("cannot make {}: is it there already?", file.display()))?;
    let mut last = String::new();
    while let Some(line) = answer.line(&client)? {
        writeln!(to, "{line}").with_context(|| format!("cannot write {}", file.display()))?;
        last = line;
    }
    to.sync_all()?;
    if !last.contains("\"sha256\"") {
        fs::remove_file(file)?;
        bail!("the controller broke off: the backup is incomplete and was removed; try again");
    }
    outln!("{}: whole", file.display())?;
    Ok(0)
}

/// `weir restore`.
pub(crate) fn restore(file: &Path, config: &Path) -> Result<u8> {
    let store = daemon::store_path(&daemon::read_config(config)?);
    let from = fs::File::open(file)
        .with_context(|| format!("{}: cannot be read: is the path right?", file.display()))?;
    let records = backup::restore(BufReader::new(from), &store)?;
    outln!("{}: {records} records; start the controller now", store.display())?;
    Ok(0)
}
