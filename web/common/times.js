// Times for people.

/** Return how long so many seconds are, such as "3 min". */
export function duration(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 120) return `${whole} s`;
  if (whole < 7200) return `${Math.floor(whole / 60)} min`;
  if (whole < 172800) return `${Math.floor(whole / 3600)} h`;
  return `${Math.floor(whole / 86400)} d`;
}

/** Return the time of day of a Unix time in milliseconds. */
export function timeOfDay(milliseconds) {
  return new Date(milliseconds).toLocaleTimeString([], { hour12: false });
}

/** Return the hour and the minute of a Unix time in seconds, such as "12:05". */
export function clockTime(seconds) {
  return new Date(seconds * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hour12: false });
}

/** Return the date and the time of a Unix time in seconds, such as "2026-01-31 12:00:01". */
export function dateAndTime(seconds) {
  const date = new Date(seconds * 1000);
  const [month, day, ...time] = [date.getMonth() + 1, date.getDate(), date.getHours(), date.getMinutes(), date.getSeconds()].map((part) => String(part).padStart(2, "0"));
  return `${date.getFullYear()}-${month}-${day} ${time.join(":")}`;
}

/** Return a time in RFC 3339 in the same way; null for none. */
export function moment(text) {
  const milliseconds = Date.parse(text ?? "");
  return Number.isNaN(milliseconds) ? null : dateAndTime(milliseconds / 1000);
}

/** Return a number with separators of thousands. */
export function count(number) {
  return number.toLocaleString("en");
}
