#include "lower/exchange.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "tiling/conversion.h"

namespace soybean {
namespace {

using Bounds = std::pair<Shape, Shape>;  // begin, end

// The wanted pieces of one tile, as entries on its device.
using Pieces = std::map<Bounds, Entry>;

Bounds bounds_of(const Region& region) { return {region.begin, region.end}; }

// The ranges along each dim whose combinations are the regions; none when the
// regions overlap, leave gaps, or are not all combinations.
std::optional<std::vector<std::vector<Range>>> grid_of(const std::vector<Region>& regions) {
  std::vector<std::vector<Range>> grid;
  size_t cells = 1;
  for (size_t d = 0; d < regions[0].begin.size(); ++d) {
    std::map<int64_t, int64_t> ranges;
    for (const Region& region : regions) {
      const auto found = ranges.emplace(region.begin[d], region.end[d]).first;
      if (found->second != region.end[d]) return std::nullopt;
    }
    std::vector<Range> along;
    for (const auto& [begin, end] : ranges) {
      if (!along.empty() && along.back().end != begin) return std::nullopt;
      along.push_back({begin, end});
    }
    cells *= along.size();
    grid.push_back(std::move(along));
  }
  if (cells != regions.size()) return std::nullopt;
  return grid;
}

class Writer {
 public:
  Writer(const std::string& name, ParallelGraph* graph) : name_(name), graph_(graph) {}

  // Fills in the entries of `pieces`, of a tile that holds `held`.
  void cut(Entry tile, const Region& held, Pieces* pieces) {
    std::vector<Region> parts;
    for (auto& [bounds, entry] : *pieces) {
      if (bounds == bounds_of(held)) {
        entry = tile;
      } else {
        parts.push_back({bounds.first, bounds.second});
      }
    }
    if (parts.empty()) return;
    const auto grid = grid_of(parts);
    if (!grid) {
      for (const Region& part : parts) {
        pieces->at(bounds_of(part)) = sliced(tile, held, part, name(tile, "~piece"), graph_);
      }
      return;
    }
    Region box;
    for (const std::vector<Range>& along : *grid) {
      box.begin.push_back(along.front().begin);
      box.end.push_back(along.back().end);
    }
    divide(sliced(tile, held, box, name(tile, "~piece"), graph_), box, *grid, 0, pieces);
  }

  // The pieces of a grid as one tile, neighbours along the last dim first.
  Entry join(std::vector<Entry> pieces, const std::vector<int64_t>& grid, int device) {
    for (size_t d = grid.size(); d-- > 0;) {
      if (grid[d] == 1) continue;
      std::vector<Entry> rows;
      for (auto row = pieces.begin(); row != pieces.end(); row += grid[d]) {
        rows.push_back(concatenated({row, row + grid[d]}, d, device));
      }
      pieces.swap(rows);
    }
    return pieces[0];
  }

  // In the same order on every device, so that copies are equal to the bit. Pair
  // by pair: the gradient of elemwise_add is its output's gradient itself. That
  // of add_n is a copy for each operand, in memory that may be another operator's
  // still, so that the gradient reaches the other devices too late.
  Entry add(const std::vector<Entry>& terms, int device) {
    Entry sum = terms[0];
    for (size_t i = 1; i < terms.size(); ++i) {
      ParallelNode node = node_on(device, "elemwise_add", "");
      node.inputs = {sum, terms[i]};
      node.outputs = {type_of(*graph_, sum)};
      sum = append(graph_, std::move(node));
    }
    return sum;
  }

  // The terms' maximum or minimum. Not pair by pair: where several are equal, all get the
  // gradient, as equal elements of one tensor do.
  Entry extreme(const std::vector<Entry>& terms, const std::string& op, int device) {
    const TensorType type = type_of(*graph_, terms[0]);
    ParallelNode stack = node_on(device, "stack", "~terms");
    stack.attrs = {{"axis", "0"}, {"num_args", std::to_string(terms.size())}};
    stack.outputs = {{with_dim(type.shape, 0, terms.size(), type.shape[0]), type.itemsize}};
    stack.inputs = terms;
    ParallelNode node = node_on(device, op.c_str(), "");
    node.attrs = {{"axis", "0"}};
    node.inputs = {append(graph_, std::move(stack))};
    node.outputs = {type};
    return append(graph_, std::move(node));
  }

  Entry arrive(Entry tile, int device) {
    if (node_of(*graph_, tile).device == device) return tile;
    ParallelNode node = node_on(device, "_copy", "");
    node.inputs = {tile};
    node.outputs = {type_of(*graph_, tile)};
    return append(graph_, std::move(node));
  }

 private:
  // A name for a node on the device; numbered where it is not the first such.
  std::string name(int device, const std::string& kind) {
    const std::string text = name_ + "@" + std::to_string(device) + kind;
    const int count = names_[text]++;
    return count == 0 ? text : text + "~" + std::to_string(count);
  }
  std::string name(Entry tile, const std::string& kind) {
    return name(node_of(*graph_, tile).device, kind);
  }

  ParallelNode node_on(int device, const char* op, const std::string& kind) {
    ParallelNode node;
    node.op = op;
    node.name = name(device, kind);
    node.device = device;
    return node;
  }

  // The cells of a tile that holds `held`, from dim `d` on.
  void divide(Entry tile, Region held, const std::vector<std::vector<Range>>& grid, size_t d,
              Pieces* pieces) {
    while (d < grid.size() && grid[d].size() == 1) ++d;
    if (d == grid.size()) {
      pieces->at(bounds_of(held)) = tile;
      return;
    }
    const std::vector<Entry> parts = split(tile, d, grid[d]);
    for (size_t i = 0; i < parts.size(); ++i) {
      held.begin[d] = grid[d][i].begin;
      held.end[d] = grid[d][i].end;
      divide(parts[i], held, grid, d + 1, pieces);
    }
  }

  // MXNet's operators divide and join as fast as memory is copied where what lies
  // behind the dim is long enough, and element by element, up to 30 times slower on
  // CPUs, where it is not. Equal parts are a dim of their own then, before theirs.
  std::vector<Entry> split(Entry tile, size_t dim, const std::vector<Range>& ranges) {
    const TensorType whole = type_of(*graph_, tile);
    const bool equal = std::all_of(ranges.begin(), ranges.end(), [&](const Range& range) {
      return range.length() == ranges[0].length();
    });
    const bool apart = equal && !has_long_rows(whole.shape, dim);
    if (apart) tile = reshaped(tile, with_dim(whole.shape, dim, ranges.size(), ranges[0].length()));
    ParallelNode node = node_on(node_of(*graph_, tile).device, equal ? "SliceChannel" : "_split_v2", "~parts");
    std::string begins;
    for (const Range& range : ranges) {
      TensorType piece = whole;
      piece.shape[dim] = range.length();
      node.outputs.push_back(piece);
      begins += (begins.empty() ? "" : ", ") + std::to_string(range.begin - ranges[0].begin);
    }
    node.attrs = {{"axis", std::to_string(dim)}, {"squeeze_axis", apart ? "True" : "False"}};
    if (equal) {
      node.attrs["num_outputs"] = std::to_string(ranges.size());
    } else {
      node.attrs["indices"] = "(" + begins + ")";
      node.attrs["sections"] = "0";
    }
    node.inputs = {tile};
    const Entry first = append(graph_, std::move(node));
    std::vector<Entry> parts;
    for (size_t i = 0; i < ranges.size(); ++i) parts.push_back({first.node, static_cast<int>(i)});
    return parts;
  }

  // Not Concat: oneDNN's backward of that crashes on pieces of few channels.
  Entry concatenated(std::vector<Entry> pieces, size_t dim, int device) {
    const TensorType first = type_of(*graph_, pieces[0]);
    TensorType whole = first;
    whole.shape[dim] = 0;
    bool equal = true;
    for (const Entry& piece : pieces) {
      const int64_t length = type_of(*graph_, piece).shape[dim];
      whole.shape[dim] += length;
      equal = equal && length == first.shape[dim];
    }
    const bool apart = equal && !has_long_rows(first.shape, dim);
    ParallelNode node = node_on(device, apart ? "stack" : "_npi_concatenate", apart ? "~rows" : "");
    node.attrs = {{"axis", std::to_string(dim)}, {"num_args", std::to_string(pieces.size())}};
    node.outputs = {whole};
    if (apart) node.outputs[0].shape = with_dim(whole.shape, dim, pieces.size(), first.shape[dim]);
    node.inputs = std::move(pieces);
    const Entry joined = append(graph_, std::move(node));
    return apart ? reshaped(joined, whole.shape) : joined;
  }

  static bool has_long_rows(const Shape& shape, size_t dim) {
    constexpr int64_t kLong = 32;  // elements
    return element_count({shape.begin() + static_cast<std::ptrdiff_t>(dim) + 1, shape.end()}) >= kLong;
  }

  // `shape` with `parts` x `length` in the place of a dim.
  static Shape with_dim(Shape shape, size_t dim, size_t parts, int64_t length) {
    shape[dim] = length;
    shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(dim), static_cast<int64_t>(parts));
    return shape;
  }

  Entry reshaped(Entry tile, const Shape& shape) {
    ParallelNode node = node_on(node_of(*graph_, tile).device, "Reshape", "~shape");
    node.attrs = {{"shape", shape_text(shape)}};
    node.outputs = {{shape, type_of(*graph_, tile).itemsize}};
    node.inputs = {tile};
    return append(graph_, std::move(node));
  }

  const std::string name_;
  ParallelGraph* graph_;
  std::map<std::string, int> names_;
};

}  // namespace

std::vector<Region> device_regions(const Mesh& mesh, const Tiling& tiling, const Shape& shape) {
  std::vector<Region> regions;
  for (int device = 0; device < mesh.devices(); ++device) {
    regions.push_back(device_region(mesh, tiling, shape, device));
  }
  return regions;
}

Tiles exchange(const Mesh& mesh, const Shape& shape, const Tiling& from, const Tiling& to,
               const std::vector<Region>& wanted, const Tiles& tiles, const std::string& name,
               const std::string& joined_by, ParallelGraph* graph) {
  const size_t devices = static_cast<size_t>(mesh.devices());
  std::vector<Assembly> assemblies(devices);
  std::vector<Pieces> pieces(devices);  // by source
  for (size_t d = 0; d < devices; ++d) {
    const int device = static_cast<int>(d);
    if (!holds(mesh, to, device)) continue;
    assemblies[d] = assembly(mesh, shape, from, wanted[d], to, device);
    for (const std::vector<Piece>& term : assemblies[d].terms) {
      for (const Piece& piece : term) {
        pieces[static_cast<size_t>(piece.source)].emplace(bounds_of(piece.region), kAbsent);
      }
    }
  }

  Writer writer(name, graph);
  for (size_t s = 0; s < devices; ++s) {
    if (pieces[s].empty()) continue;
    const Region held = device_region(mesh, from, shape, static_cast<int>(s));
    writer.cut(tiles[s], held, &pieces[s]);
  }

  Tiles out(devices, kAbsent);
  for (size_t d = 0; d < devices; ++d) {
    const int device = static_cast<int>(d);
    std::vector<Entry> terms;
    for (const std::vector<Piece>& term : assemblies[d].terms) {
      std::vector<Entry> received;
      for (const Piece& piece : term) {
        received.push_back(pieces[static_cast<size_t>(piece.source)].at(bounds_of(piece.region)));
      }
      terms.push_back(writer.join(std::move(received), assemblies[d].grid, device));
    }
    if (terms.empty()) continue;
    const bool extreme = !joined_by.empty() && terms.size() > 1;
    out[d] = writer.arrive(extreme ? writer.extreme(terms, joined_by, device) : writer.add(terms, device), device);
  }
  return out;
}

Entry sliced(Entry tile, const Region& held, const Region& part, const std::string& name,
             ParallelGraph* graph) {
  std::vector<size_t> dims;
  Shape begin, end;
  for (size_t d = 0; d < part.begin.size(); ++d) {
    begin.push_back(part.begin[d] - held.begin[d]);
    end.push_back(part.end[d] - held.begin[d]);
    if (part.begin[d] != held.begin[d] || part.end[d] != held.end[d]) dims.push_back(d);
  }
  if (dims.empty()) return tile;
  ParallelNode node;
  node.name = name;
  node.device = node_of(*graph, tile).device;
  node.inputs = {tile};
  node.outputs = {{part.shape(), type_of(*graph, tile).itemsize}};
  if (dims.size() == 1) {
    node.op = "slice_axis";
    node.attrs = {{"axis", std::to_string(dims[0])},
                  {"begin", std::to_string(begin[dims[0]])},
                  {"end", std::to_string(end[dims[0]])}};
  } else {
    node.op = "slice";
    node.attrs = {{"begin", shape_text(begin)}, {"end", shape_text(end)}};
  }
  return append(graph, std::move(node));
}

}  // namespace soybean
