//! The controller itself, its tokens and its backups.

use super::change::all as every;
use super::{connect, done};
use crate::args::{self, AuthorityStep, Connection, ControllerCommand, Host, HostModeName, Token};
use crate::log_to_stderr;
use crate::output::{errln, outln};
use anyhow::{Context as _, Result, bail};
use hyper::Method;
use serde_json::{Value, json};
use std::fs::{self, OpenOptions};
use std::io::{BufReader, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use weir_controller::client::Client;
use weir_controller::clock::Clock;
use weir_controller::daemon::{self, Made};
use weir_controller::roots;
use weir_controller::tls::fingerprint;
use weir_model::controller::ControllerConfig;
use weir_model::objects::Kind;
use weir_study::table::Grid;

/// `weir controller`.
pub(crate) fn controller(args: &args::Controller) -> Result<u8> {
    let (config, client, listen, names, data, store) = match &args.init {
        None => {
            log_to_stderr();
            return daemon::run(&args.config).map(|()| 0);
        }
        Some(ControllerCommand::Authority { step, config }) => return authority(*step, config),
        Some(ControllerCommand::Init { config, client, listen, names, data, store }) => {
            (config, client, listen, names, data, store)
        }
    };
    let wanted = ControllerConfig {
        store: store.clone(),
        ..ControllerConfig::new(*listen, names.clone(), data.clone())
    };
    let Made { config: made, client, authority } = daemon::init_as(config, client, wanted)?;
    if let Some(made) = made {
        outln!("made {}: the controller's configuration", made.display())?;
    }
    outln!("made {}: the first operator's token; keep it secret", client.display())?;
    outln!("made {}: clients on other machines need a copy", authority.display())?;
    outln!("now start it: systemctl enable --now weir-controller, if the package is installed;")?;
    outln!("else: weir controller --config {}", config.display())?;
    Ok(0)
}

/// `weir controller authority`.
fn authority(step: AuthorityStep, config: &Path) -> Result<u8> {
    let (step, next) = match step {
        AuthorityStep::Add => {
            (roots::Step::Add, "in a day, when all hosts have renewed, continue with `swap`")
        }
        AuthorityStep::Swap => {
            (roots::Step::Swap, "in a day, when all hosts have renewed, continue with `drop`")
        }
        AuthorityStep::Drop => {
            (roots::Step::Drop, "the former authority is worthless from then on")
        }
    };
    let folder = daemon::read_config(config)?.data_dir;
    roots::step(&folder, step)?;
    outln!("done: restart the controller, and give clients the new {}/ca.crt", folder.display())?;
    outln!("{next}")?;
    Ok(0)
}

/// `weir host`.
pub(crate) fn host(host: &Host) -> Result<u8> {
    match host {
        Host::Token { name, valid, connection } => {
            let expires = Clock::start().now().plus_millis(valid.as_nanos() / 1_000_000);
            let wanted = json!({
                "name": format!("host-{name}"), "role": "host", "host": name,
                "expires": expires.to_string(),
            });
            let reply = connect(connection)?.send(Method::POST, "/api/v1/tokens", &wanted)?;
            let made = done(&reply)?;
            outln!("{}", made["token"].as_str().unwrap_or_default())?;
            errln!("it works once, for `{name}` alone, until {expires}; on that host:");
            let authority = fingerprint(&super::config(connection)?.ca)?;
            errln!("  weir agent join --token - --ca {authority}");
        }
        Host::Mode { mode, hosts, tenant, all, connection } => {
            set_mode(*mode, hosts, tenant, *all, connection)?;
        }
        Host::Revoke { name, connection } => {
            let path = format!("/api/v1/hosts/{name}/revoke");
            done(&connect(connection)?.ask(Method::POST, &path, &[], "")?)?;
            outln!("host {name} is refused from now on; the floors that it has stay")?;
        }
    }
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
    let settings = daemon::read_config(config)?;
    let from = fs::File::open(file)
        .with_context(|| format!("{}: cannot be read: is the path right?", file.display()))?;
    let records = daemon::restore(BufReader::new(from), &settings)?;
    let place = settings.store.unwrap_or_else(|| settings.data_dir.display().to_string());
    outln!("{place}: {records} records; start the controller now")?;
    Ok(0)
}

/// The hosts that have VMs of these tenants, and these hosts.
fn with_those_of(client: &mut Client, hosts: &[String], tenants: &[String]) -> Result<Vec<String>> {
    let mut hosts = hosts.to_vec();
    if tenants.is_empty() {
        return Ok(hosts);
    }
    let known = every(client, Kind::Tenant)?;
    for tenant in tenants {
        if !known.iter().any(|item| item["metadata"]["name"] == **tenant) {
            bail!("there is no Tenant `{tenant}`: see `weir get tenants`");
        }
    }
    let vms = every(client, Kind::Vm)?;
    let is_theirs = |item: &&Value| {
        item["spec"]["tenant"].as_str().is_some_and(|name| tenants.iter().any(|it| it == name))
    };
    let host = |item: &Value| item["status"]["host"].as_str().map(ToOwned::to_owned);
    hosts.extend(vms.iter().filter(is_theirs).filter_map(host));
    Ok(hosts)
}

/// All of the hosts or none.
fn set_mode(
    mode: HostModeName,
    hosts: &[String],
    tenants: &[String],
    all: bool,
    connection: &Connection,
) -> Result<()> {
    let mut client = connect(connection)?;
    let hosts = &with_those_of(&mut client, hosts, tenants)?;
    let mut items = every(&mut client, Kind::Host)?;
    let name_of = |item: &Value| item["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let known: Vec<String> = items.iter().map(name_of).collect();
    if let Some(unknown) = hosts.iter().find(|host| !known.contains(host)) {
        bail!("there is no Host `{unknown}`: see `weir get hosts`");
    }
    items.retain(|item| all || hosts.contains(&name_of(item)));
    if items.is_empty() && !all {
        bail!("no VM of {} is on a host: see `weir get vms`", tenants.join(", "));
    }
    let word = match mode {
        HostModeName::Enforce => json!("enforce"),
        HostModeName::Observe => json!("observe"),
        HostModeName::File => json!("file"),
    };
    for item in &mut items {
        item["spec"]["mode"] = word.clone();
        if let Some(item) = item.as_object_mut() {
            item.remove("status");
        }
    }
    done(&client.send(Method::POST, "/api/v1/apply", &json!({ "items": items }))?)?;
    let what = match mode {
        HostModeName::Enforce => "enforce floors",
        HostModeName::Observe => "only observe",
        HostModeName::File => "do what their own agent.toml says",
    };
    outln!("{} of {} hosts are told to {what}", items.len(), known.len())?;
    Ok(())
}
