// A box on a photo, by mouse, finger or keyboard. Values are fractions of the photo: [x, y, width, height].

const SMALLEST = 0.03;
const STEP = 0.02;
const FIRST = [0.25, 0.25, 0.5, 0.5];
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

const clamp = (value, low, high) => Math.min(Math.max(value, low), high);

export class BoxTool {
  // onSearch(box or null) is called when a box is finished or taken away; say(text) tells a screen reader.
  constructor(stage, frame, { onSearch, say }) {
    Object.assign(this, { stage, frame, onSearch, say, box: null, armed: false, drag: null });
    stage.addEventListener("pointerdown", (event) => this.begin(event));
    stage.addEventListener("pointermove", (event) => this.move(event));
    stage.addEventListener("pointerup", (event) => this.end(event));
    stage.addEventListener("pointercancel", () => this.cancel());
    stage.addEventListener("keydown", (event) => this.key(event));
    stage.addEventListener("dragstart", (event) => event.preventDefault());
  }

  // A finger draws only after this: otherwise it scrolls.
  arm(on) {
    this.armed = on;
    this.stage.classList.toggle("armed", on);
  }

  set(box) {
    this.box = box;
    this.frame.hidden = box === null;
    if (box === null) return;
    const [left, top, width, height] = box.map((value) => `${100 * value}%`);
    Object.assign(this.frame.style, { left, top, width, height });
  }

  place(event) {
    const area = this.stage.getBoundingClientRect();
    return [(event.clientX - area.left) / area.width, (event.clientY - area.top) / area.height]
      .map((value) => clamp(value, 0, 1));
  }

  begin(event) {
    if (event.button !== 0 || (event.pointerType === "touch" && !this.armed)) return;
    const [x, y] = this.place(event);
    const corner = event.target.dataset?.corner;
    const before = this.box;
    if (corner && before) {
      const [left, top, width, height] = before;
      const fixed = [corner.includes("w") ? left + width : left, corner.includes("n") ? top + height : top];
      this.drag = { kind: "draw", fixed, before };
    } else if (event.target === this.frame && before) {
      this.drag = { kind: "move", from: [x, y], before };
    } else {
      this.drag = { kind: "draw", fixed: [x, y], before };
    }
    this.stage.setPointerCapture(event.pointerId);
    event.preventDefault();
    this.stage.focus({ preventScroll: true });
  }

  move(event) {
    if (!this.drag) return;
    const [x, y] = this.place(event);
    const { kind, fixed, from, before } = this.drag;
    if (kind === "move") {
      this.set(moved(before, x - from[0], y - from[1]));
    } else {
      this.set([Math.min(x, fixed[0]), Math.min(y, fixed[1]), Math.abs(x - fixed[0]), Math.abs(y - fixed[1])]);
    }
  }

  end(event) {
    if (!this.drag) return;
    this.move(event);
    const { before } = this.drag;
    this.drag = null;
    const small = !this.box || this.box[2] < SMALLEST || this.box[3] < SMALLEST;
    if (small) this.set(before); // a click, not a box
    else if (String(this.box) !== String(before)) this.onSearch(this.box);
  }

  cancel() {
    if (this.drag) this.set(this.drag.before);
    this.drag = null;
  }

  key(event) {
    const arrow = ARROWS[event.key];
    if (event.key === "Enter" || event.key === " ") {
      if (this.box) this.onSearch(this.box);
      else this.change(FIRST);
    } else if (arrow && this.box) {
      const [x, y] = arrow.map((value) => value * STEP);
      this.change(event.shiftKey ? resized(this.box, x, y) : moved(this.box, x, y));
    } else if ((event.key === "Escape" || event.key === "Delete") && this.box) {
      this.set(null);
      this.onSearch(null);
    } else {
      return;
    }
    event.preventDefault();
  }

  change(box) {
    this.set(box);
    const [left, top, width, height] = box.map((value) => Math.round(100 * value));
    this.say(`Box: ${left} % from the left, ${top} % from the top, ${width} % wide, ${height} % high. Enter searches.`);
  }
}

function moved([left, top, width, height], x, y) {
  return [clamp(left + x, 0, 1 - width), clamp(top + y, 0, 1 - height), width, height];
}

function resized([left, top, width, height], x, y) {
  return [left, top, clamp(width + x, SMALLEST, 1 - left), clamp(height + y, SMALLEST, 1 - top)];
}
