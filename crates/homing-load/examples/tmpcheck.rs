use std::collections::BTreeMap;
fn main() {
    let paths: Vec<_> = std::env::args().skip(1).map(Into::into).collect();
    let t = std::time::Instant::now();
    let r = homing_load::check(&paths, &Default::default(), &mut |_, _| ());
    eprintln!("{:?}", t.elapsed());
    println!("files {} agents {} skills {} ignored {} diags {}", r.files, r.agents, r.skills, r.ignored, r.diagnostics.len());
    let mut m: BTreeMap<String, (usize, String)> = BTreeMap::new();
    for d in &r.diagnostics {
        let k = format!("{:?} {}", d.severity, d.message.split('`').enumerate().map(|(i, s)| if i % 2 == 0 || d.message.contains("no tool") || d.message.contains("nobody here") { s } else { "_" }).collect::<String>());
        let e = m.entry(k).or_insert((0, d.to_string()));
        e.0 += 1;
    }
    for (k, (n, ex)) in m { println!("{n:5} {k}\n        {}", ex.chars().take(260).collect::<String>()); }
}
