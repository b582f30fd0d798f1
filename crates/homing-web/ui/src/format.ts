/** Numbers, money and times as the pages show them. */

/** Money as the command line shows it: from a dollar on in cents, below with two to four decimals, tiny amounts exactly. */
export function money(micros: number): string {
  if (micros === 0) return "$0";
  const unit = micros < 100 ? 1 : micros < 999_950 ? 100 : 10_000;
  const [whole, digits] = ((Math.floor((micros + unit / 2) / unit) * unit) / 1e6).toFixed(6).split(".");
  return `$${whole}.${digits.replace(/0+$/, "").padEnd(2, "0")}`;
}

export function count(value: number): string {
  if (value < 1000) return String(value);
  if (value < 100_000) return (value / 1000).toFixed(1) + "k";
  if (value < 1e6) return Math.round(value / 1000) + "k";
  return (value / 1e6).toFixed(1) + "M";
}

export function duration(ms: number): string {
  if (ms < 0) ms = 0;
  if (ms < 1000) return Math.round(ms) + " ms";
  const seconds = ms / 1000;
  if (seconds < 60) return seconds.toFixed(seconds < 10 ? 1 : 0) + " s";
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} m ${String(Math.floor(seconds % 60)).padStart(2, "0")} s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${String(minutes % 60).padStart(2, "0")} m`;
  return `${Math.floor(hours / 24)} d`;
}

export function age(at: number, now: number): string {
  const ms = Math.max(0, now - at);
  if (ms < 60_000) return "now";
  if (ms < 3_600_000) return Math.floor(ms / 60_000) + " min";
  if (ms < 86_400_000) return Math.floor(ms / 3_600_000) + " h";
  return Math.floor(ms / 86_400_000) + " d";
}

/** A time in the zone of the reader. */
export function clock(at: number): string {
  return new Date(at).toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
}

export function dateTime(at: number): string {
  return new Date(at).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" });
}

export function plural(n: number, one: string, many = one + "s"): string {
  return `${n} ${n === 1 ? one : many}`;
}

/** The short form of an ID, as the command line shows and accepts it: its random end. The beginning is a time, which runs share. */
export function short(id: string): string {
  return id.slice(-8);
}

/** The line of a task that names it. */
export function title(task: string): string {
  return task.trim().split("\n", 1)[0] || "(no task)";
}

/** A word of a shell command, quoted if it needs to be. */
export function quoted(word: string): string {
  return /^[\w./:=+,@-]+$/.test(word) ? word : "'" + word.replaceAll("'", "'\\''") + "'";
}

export function lastFolder(path: string): string {
  return path.split("/").filter(Boolean).pop() ?? path;
}

/**
 * A foreign text with its invisible letters and those that reverse the order made visible, for places where a user decides by what
 * it says.
 */
export function visible(text: string): string {
  return text.replace(/[\p{Cf}\u034f\u115f\u1160\u17b4\u17b5\u3164\ufe00-\ufe0f\uffa0]/gu, (letter) => `\\u{${letter.codePointAt(0)!.toString(16)}}`);
}
