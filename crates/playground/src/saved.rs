//! Saving a world, and going on with it later.

use crate::world::World;
use flotilla_apiserver::Foreign;
use flotilla_model::Timestamp;
use serde_json::{Value, json};

/// The form in which worlds are saved. Another one is refused.
const FORM: u64 = 1;

/// So many nodes are simulated, at most.
const NODES_MAX: u64 = 100_000;

/// No world was saved later: in milliseconds since 1970, the year 2500 or so.
const LATEST_MS: i64 = 530 * 365 * 24 * 3_600_000;

/// Why a saved world cannot be gone on with.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// It is no saved world.
    #[error("this is not what `flotilla playground --save` writes: {0}")]
    Unreadable(String),
    /// It was saved by another version.
    #[error("it was saved in form {found}, and this version reads form {FORM} only; use the version that saved it")]
    Form {
        /// The form that it has.
        found: u64,
    },
}

/// What a saved world holds, for those who only want to look at it.
#[derive(Clone, Debug)]
pub struct Saved {
    /// When it was saved.
    pub now: Timestamp,
    /// How many nodes it has.
    pub nodes: usize,
    /// All objects.
    pub objects: Vec<Foreign>,
}

impl Saved {
    /// Reads what [`World::save`] wrote.
    pub fn read(saved: &Value) -> Result<Self, LoadError> {
        check_form(saved)?;
        let objects = saved["server"]["objects"].as_array();
        let objects = objects.ok_or_else(|| LoadError::Unreadable("there are no objects".to_owned()))?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let object = |entry: &Value| Foreign {
            group: text(&entry["group"]),
            resource: text(&entry["resource"]),
            object: entry["object"].clone(),
        };
        Ok(Saved {
            now: Timestamp::from_millis(saved["now"].as_i64().unwrap_or(0)),
            nodes: saved["nodes"].as_u64().unwrap_or(1) as usize,
            objects: objects.iter().map(object).collect(),
        })
    }
}

fn check_form(saved: &Value) -> Result<(), LoadError> {
    let form = saved["flotillaPlayground"].as_u64();
    match form.ok_or_else(|| LoadError::Unreadable("it has no field flotillaPlayground".to_owned()))? {
        FORM => {}
        found => return Err(LoadError::Form { found }),
    }
    let nodes = saved["nodes"].as_u64().filter(|nodes| *nodes <= NODES_MAX);
    if nodes.is_none() && !saved["nodes"].is_null() {
        let why = format!("nodes is {}, and has to be a number up to {NODES_MAX}", saved["nodes"]);
        return Err(LoadError::Unreadable(why));
    }
    let now = saved["now"].as_i64().filter(|now| (0..=LATEST_MS).contains(now));
    if now.is_none() && !saved["now"].is_null() {
        let why = format!(
            "now is {}, and has to be a time in milliseconds since 1970",
            saved["now"]
        );
        return Err(LoadError::Unreadable(why));
    }
    let objects = saved["server"]["objects"].as_array().into_iter().flatten();
    objects
        .enumerate()
        .try_for_each(|(index, entry)| check_object(index, entry))
}

/// Objects are read, and written to, as such: what is no object in the place of one would be no object of any API server either.
fn check_object(index: usize, entry: &Value) -> Result<(), LoadError> {
    let wrong = |what: &str| LoadError::Unreadable(format!("of server.objects[{index}] {what}"));
    let object = &entry["object"];
    let name = object["metadata"]["name"].as_str();
    if name.is_none_or(str::is_empty) {
        return Err(wrong("object.metadata.name is missing"));
    }
    for path in ["/metadata/labels", "/metadata/annotations", "/spec", "/status"] {
        let found = object.pointer(path);
        if found.is_some_and(|value| !value.is_object() && !value.is_null()) {
            return Err(wrong(&format!("object{} is no object", path.replace('/', "."))));
        }
    }
    Ok(())
}

impl World {
    /// Everything that is stored, as JSON.
    pub fn save(&self) -> Value {
        json!({
            "flotillaPlayground": FORM,
            "nodes": self.nodes.len(),
            "now": self.server.now.as_millis(),
            "server": self.server.export(),
        })
    }

    /// A world that was saved. Time goes on from `now`, or from when it was saved if that is later.
    pub fn load(saved: &Value, speed: f64, now: Timestamp) -> Result<Self, LoadError> {
        check_form(saved)?;
        let then = Timestamp::from_millis(saved["now"].as_i64().unwrap_or(0));
        let nodes = saved["nodes"].as_u64().unwrap_or(1) as usize;
        let mut world = World::bare(nodes, speed, now.max(then));
        world.server.import(&saved["server"]).map_err(LoadError::Unreadable)?;
        world.react();
        world.resume();
        Ok(world)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Trouble;
    use bytes::Bytes;
    use flotilla_apiserver::{Reply, handle};
    use flotilla_simserver::Host;
    use http::Request;
    use std::time::Duration;

    #[test]
    fn a_world_goes_on_where_it_was_saved() {
        let now = Timestamp::from_seconds(1_700_000_000);
        let world = World::new(2, 1.0, now);
        let saved = world.save();
        let again = World::load(&saved, 1.0, now).unwrap();
        let objects = |saved: &Value| {
            let mut objects = saved["server"]["objects"].as_array().cloned().unwrap_or_default();
            for entry in &mut objects {
                // They have been stored anew.
                entry["object"]["metadata"]["resourceVersion"].take();
            }
            objects
        };
        let (again, saved) = (objects(&again.save()), objects(&saved));
        assert_eq!(again.len(), saved.len());
        for (again, saved) in again.iter().zip(&saved) {
            assert_eq!(again, saved);
        }
        let looked_at = Saved::read(&world.save()).unwrap();
        assert_eq!((looked_at.now, looked_at.nodes), (now, 2));
        assert_eq!(looked_at.objects.len(), saved.len());
    }

    fn ask(world: &mut World, request: Request<Bytes>) -> Value {
        let Reply::Answer(answer) = handle(&mut world.server, &request) else {
            panic!("a watch")
        };
        serde_json::from_slice(answer.body()).unwrap()
    }

    fn pod(world: &mut World) -> Value {
        let request = Request::get("/api/v1/namespaces/default/pods/p");
        ask(world, request.body(Bytes::new()).unwrap())
    }

    /// A world with a pod that needs a minute to start, ten seconds after it was made.
    fn with_a_pod_that_starts(now: Timestamp) -> World {
        let mut world = World::new(1, 1.0, now);
        let object = json!({"metadata": {"name": "p", "annotations": {"sim.flotilla.rs/start": "1m"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]}});
        let request = Request::post("/api/v1/namespaces/default/pods").body(Bytes::from(object.to_string()));
        ask(&mut world, request.unwrap());
        world.advance(now + Duration::from_secs(10));
        assert_eq!(pod(&mut world)["status"]["phase"], "Pending");
        assert!(pod(&mut world)["spec"]["nodeName"].is_string());
        world
    }

    #[test]
    fn what_was_under_way_goes_on() {
        let now = Timestamp::from_seconds(1_700_000_000);
        let saved = with_a_pod_that_starts(now).save();
        let mut world = World::load(&saved, 1.0, now).unwrap();
        world.advance(now + Duration::from_secs(200));
        assert_eq!(pod(&mut world)["status"]["phase"], "Running");

        let request = Request::delete("/api/v1/namespaces/default/pods/p").body(Bytes::new());
        ask(&mut world, request.unwrap());
        let saved = world.save();
        let mut world = World::load(&saved, 1.0, now).unwrap();
        assert!(pod(&mut world)["metadata"]["deletionTimestamp"].is_string());
        world.advance(now + Duration::from_secs(400));
        assert_eq!(pod(&mut world)["code"], 404);
    }

    #[test]
    fn a_lost_node_comes_back_after_it_was_saved() {
        let now = Timestamp::from_seconds(1_700_000_000);
        let mut world = World::new(2, 1.0, now);
        world.befall(&Trouble::Node(1));
        let mut world = World::load(&world.save(), 1.0, now).unwrap();
        assert!(world.nodes[1].is_lost && !world.nodes[0].is_lost);
        world.advance(now + Duration::from_secs(100));
        assert!(!world.nodes[1].is_lost);
    }

    #[test]
    fn another_form_is_refused_by_name() {
        let now = Timestamp::from_seconds(0);
        let newer = json!({"flotillaPlayground": 2});
        assert!(
            World::load(&newer, 1.0, now)
                .unwrap_err()
                .to_string()
                .contains("form 2")
        );
        assert!(World::load(&json!({}), 1.0, now).is_err());
    }

    #[test]
    fn what_is_no_object_is_refused_with_its_place() {
        let now = Timestamp::from_seconds(1_700_000_000);
        let saved = World::new(1, 1.0, now).save();
        let with = |path: &str, value: Value| {
            let mut saved = saved.clone();
            *saved.pointer_mut(path).expect("a field") = value;
            let looked_at = Saved::read(&saved).map(|_| ()).map_err(|why| why.to_string());
            let gone_on = World::load(&saved, 1.0, now).map(|_| ()).map_err(|why| why.to_string());
            assert_eq!(looked_at, gone_on);
            looked_at.expect_err("refused")
        };
        for (path, value, words) in [
            (
                "/nodes",
                json!(1_000_000_000_000_u64),
                "nodes is 1000000000000, and has to be a number up to 100000",
            ),
            ("/nodes", json!("two"), "nodes is \"two\", and has to be a number"),
            (
                "/now",
                json!(i64::MAX),
                "now is 9223372036854775807, and has to be a time",
            ),
            ("/now", json!("x"), "now is \"x\", and has to be a time"),
            (
                "/server/objects/0",
                json!("pod"),
                "of server.objects[0] object.metadata.name is missing",
            ),
            (
                "/server/objects/0/object/metadata",
                json!("pod"),
                "of server.objects[0] object.metadata.name is missing",
            ),
            (
                "/server/objects/0/object/spec",
                json!(3),
                "of server.objects[0] object.spec is no object",
            ),
        ] {
            let said = with(path, value);
            assert!(said.contains(words), "{said}");
        }
    }
}
