// Columns of a table that sort its rows.

import { h } from "./dom.js";

/** What a table is sorted by. It outlives the view, for as long as the page is open. */
export class Sorting {
  #keys;
  #column;
  #isDescending = false;

  /** `keys` are functions from an item to what it is sorted by, by the columns that sort. */
  constructor(keys, column) {
    this.#keys = keys;
    this.#column = column;
  }

  /** Return the items in order; those without a value are last. */
  sorted(items) {
    const key = this.#keys[this.#column];
    const direction = this.#isDescending ? -1 : 1;
    return items
      .map((item) => [key(item) ?? null, item])
      .sort(([one], [other]) => (one === null || other === null ? (one === null) - (other === null) : direction * ((one > other) - (one < other))))
      .map(([, item]) => item);
  }

  /** Return the header of the table; `changed` is called when another order is chosen. */
  header(columns, changed) {
    return h("tr", {}, columns.map((text) => (this.#keys[text] ? this.#sorter(text, changed) : h("th", { scope: "col" }, text))));
  }

  #sorter(text, changed) {
    const isChosen = text === this.#column;
    const choose = () => {
      this.#isDescending = isChosen && !this.#isDescending;
      this.#column = text;
      changed();
    };
    return h("th", { scope: "col", "aria-sort": isChosen && (this.#isDescending ? "descending" : "ascending") },
      h("button", { type: "button", class: "sorter", title: `Sort by ${text}`, "data-key": `sort ${text}`, onclick: choose }, text));
  }
}
