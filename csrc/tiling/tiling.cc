#include "tiling/tiling.h"

#include <algorithm>
#include <cstdlib>

namespace soybean {

Mesh::Mesh(int64_t devices) : devices_(static_cast<int>(devices)) {
  if (devices < 1 || devices > 4096) {
    throw Error("the number of devices is " + std::to_string(devices) + ": 1 to 4096 are possible");
  }
  int rest = devices_;
  for (int p = 2; rest > 1; ++p) {
    for (; rest % p == 0; rest /= p) cuts_.push_back(p);
  }
  stride_.resize(cuts_.size());
  int stride = 1;
  for (size_t i = cuts_.size(); i-- > 0;) {
    stride_[i] = stride;
    stride *= cuts_[i];
  }
}

std::string choice_text(Choice choice) {
  switch (choice) {
    case kReplicated: return "replicated";
    case kOwner: return "owner";
    case kPartial: return "partial";
    default: return "split " + std::to_string(choice);
  }
}

Choice parse_choice(const std::string& text, const std::string& what) {
  if (text == "replicated") return kReplicated;
  if (text == "owner") return kOwner;
  if (text.compare(0, 6, "split ") == 0 && text.size() > 6 && text.size() < 9 &&
      text.find_first_not_of("0123456789", 6) == std::string::npos) {
    return std::atoi(text.c_str() + 6);
  }
  throw Error(what + " is tiled '" + text + "': 'split DIM', 'replicated' or 'owner' are possible");
}

Shape Region::shape() const {
  Shape s(begin.size());
  for (size_t d = 0; d < begin.size(); ++d) s[d] = end[d] - begin[d];
  return s;
}

Range part_of(Range whole, int p, int g) {
  const int64_t base = whole.length() / p, longer = whole.length() % p;
  const int64_t begin = whole.begin + g * base + std::min<int64_t>(g, longer);
  return Range{begin, begin + base + (g < longer ? 1 : 0)};
}

Range device_range(const Mesh& mesh, const std::vector<int>& choices, int value, int64_t extent,
                   int device) {
  Range range{0, extent};
  for (int cut = mesh.cut_count() - 1; cut >= 0; --cut) {
    if (choices[static_cast<size_t>(cut)] == value) {
      range = part_of(range, mesh.parts(cut), mesh.digit(device, cut));
    }
  }
  return range;
}

bool holds(const Mesh& mesh, const Tiling& tiling, int device) {
  for (int cut = 0; cut < mesh.cut_count(); ++cut) {
    if (tiling[static_cast<size_t>(cut)] == kOwner && mesh.digit(device, cut) != 0) return false;
  }
  return true;
}

Region device_region(const Mesh& mesh, const Tiling& tiling, const Shape& shape, int device) {
  Region region;
  for (size_t d = 0; d < shape.size(); ++d) {
    const Range range = device_range(mesh, tiling, static_cast<int>(d), shape[d], device);
    region.begin.push_back(range.begin);
    region.end.push_back(range.end);
  }
  return region;
}

bool fits(const Mesh& mesh, const Tiling& tiling, const Shape& shape) {
  std::vector<int64_t> parts(shape.size(), 1);
  for (int cut = 0; cut < mesh.cut_count(); ++cut) {
    const Choice choice = tiling[static_cast<size_t>(cut)];
    if (choice < 0) continue;
    const size_t d = static_cast<size_t>(choice);
    if (d >= shape.size()) return false;
    parts[d] *= mesh.parts(cut);
    if (parts[d] > shape[d]) return false;
  }
  return true;
}

}  // namespace soybean
