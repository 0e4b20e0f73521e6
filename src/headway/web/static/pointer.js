// Pointers, wheels and fingers on a canvas: drag to pan, pinch or Ctrl and wheel to zoom, click to choose.

const CLICK_PX = 4;

/** Listen on a canvas; handlers get CSS pixels: pan(dx, dy), zoom(factor, x, y), choose(x, y), hover(x, y). */
export function listen(canvas, { pan, zoom, choose, hover, leave, scroll }) {
  const pointers = new Map();
  let moved = 0;
  const place = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    canvas.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, place(event));
    moved = 0;
  });
  canvas.addEventListener("pointermove", (event) => {
    const [x, y] = place(event), before = pointers.get(event.pointerId);
    if (before === undefined) {
      hover?.(x, y);
      return;
    }
    if (pointers.size === 2) {
      const other = [...pointers].find(([id]) => id !== event.pointerId)[1];
      const was = Math.hypot(before[0] - other[0], before[1] - other[1]), is = Math.hypot(x - other[0], y - other[1]);
      if (was > 0 && is > 0) zoom(was / is, (x + other[0]) / 2, (y + other[1]) / 2);
      moved = Infinity;
    } else {
      moved += Math.hypot(x - before[0], y - before[1]);
      if (moved > CLICK_PX) pan(x - before[0], y - before[1], before);
    }
    pointers.set(event.pointerId, [x, y]);
  });
  const end = (event) => {
    if (pointers.delete(event.pointerId) && event.type === "pointerup" && moved <= CLICK_PX) choose(...place(event));
  };
  canvas.addEventListener("pointerup", end);
  canvas.addEventListener("pointercancel", end);
  canvas.addEventListener("pointerleave", () => leave?.());
  canvas.addEventListener("wheel", (event) => {
    const [x, y] = place(event);
    const unit = event.deltaMode === 1 ? 16 : 1;
    if (event.ctrlKey || event.metaKey || event.altKey) zoom(Math.exp((event.deltaY * unit) / 300), x, y, event);
    else if (!scroll?.(event.deltaX * unit, event.deltaY * unit, event, x, y)) return;
    event.preventDefault();
  }, { passive: false });
}
