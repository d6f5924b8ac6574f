#include "tiling/tiling.h"

#include <algorithm>
#include <cstdlib>

namespace soybean {

namespace {

std::vector<int> prime_factors(int64_t devices) {
  if (devices < 1 || devices > 4096) {
    throw Error("the number of devices is " + std::to_string(devices) + ": 1 to 4096 are possible");
  }
  std::vector<int> factors;
  for (int p = 2; devices > 1; ++p) {
    for (; devices % p == 0; devices /= p) factors.push_back(p);
  }
  return factors;
}

}  // namespace

Mesh::Mesh(int64_t devices) : Mesh(prime_factors(devices)) {}

Mesh::Mesh(std::vector<int> cuts, std::vector<int> levels, bool any_level)
    : cuts_(std::move(cuts)), levels_(std::move(levels)) {
  levels_.resize(cuts_.size(), levels_.empty() ? 0 : levels_.back());
  int64_t devices = 1;
  for (const int p : cuts_) {
    bool prime = p > 1;
    for (int q = 2; q * q <= p; ++q) prime = prime && p % q != 0;
    if (!prime) throw Error("a cut has " + std::to_string(p) + " parts: primes are possible");
    devices *= p;
    if (devices > 4096) {
      throw Error("the cuts make more than 4096 devices: 1 to 4096 are possible");
    }
  }
  devices_ = static_cast<int>(devices);
  count(any_level);
}

void Mesh::count(bool any_level) {
  stride_.resize(cuts_.size());
  int stride = 1;
  for (size_t i = cuts_.size(); i-- > 0;) {
    stride_[i] = stride;
    stride *= cuts_[i];
  }
  for (int cut = 0; cut < cut_count(); ++cut) {
    const auto alike = [&](const std::vector<int>& c) {
      return parts(c[0]) == parts(cut) && (any_level || level(c[0]) == level(cut));
    };
    auto it = std::find_if(classes_.begin(), classes_.end(), alike);
    if (it == classes_.end()) it = classes_.insert(classes_.end(), std::vector<int>());
    it->push_back(cut);
    class_of_.push_back(static_cast<int>(it - classes_.begin()));
  }
}

void Division::set(const std::vector<int>& choices) {
  if (choices.size() > kMaxCuts) {
    throw Error(std::to_string(choices.size()) + " cuts are given: " + std::to_string(kMaxCuts) + " at most are possible");
  }
  size_ = static_cast<uint8_t>(choices.size());
  for (size_t i = 0; i < choices.size(); ++i) choices_[i] = static_cast<int8_t>(choices[i]);
}

Division::Division(const std::vector<int>& choices) {
  set(choices);
  std::array<int, kMaxCuts> order{};
  for (size_t i = 0; i < size_; ++i) order[i] = -static_cast<int>(i);
  rank(order.data());
}

Division::Division(const std::vector<int>& choices, const std::vector<int>& levels) {
  set(choices);
  rank(levels.data());
}

void Division::rank(const int* order) {
  for (size_t i = 0; i < size_; ++i) {
    int level = 0;
    for (size_t j = 0; j < size_ && choices_[i] >= 0; ++j) {
      // Of equal ones the last cut divides first, as usual.
      const bool before = order[j] != order[i] ? order[j] < order[i] : j > i;
      level += choices_[j] == choices_[i] && before ? 1 : 0;
    }
    levels_[i] = static_cast<int8_t>(level);
  }
}

bool Division::has(int choice) const { return std::find(begin(), end(), choice) != end(); }

std::vector<int> Division::cuts_of(int choice) const {
  std::vector<int> cuts;
  for (size_t i = 0; i < size_; ++i) {
    if (choices_[i] == choice) cuts.push_back(static_cast<int>(i));
  }
  std::sort(cuts.begin(), cuts.end(), [this](int a, int b) {
    return levels_[static_cast<size_t>(a)] < levels_[static_cast<size_t>(b)];
  });
  return cuts;
}

bool Division::is_usual(size_t cut) const {
  if (choices_[cut] < 0) return true;
  const std::vector<int> cuts = cuts_of(choices_[cut]);
  return std::is_sorted(cuts.rbegin(), cuts.rend());
}

Division Division::with(int cut, int choice) const {
  Division out = *this;
  const size_t i = static_cast<size_t>(cut);
  int inside = 0;  // the cuts that divide before it now
  for (size_t j = 0; j < size_; ++j) {
    if (j == i) continue;
    inside += choices_[j] == choice ? 1 : 0;
    if (choices_[j] == choices_[i] && levels_[j] > levels_[i]) --out.levels_[j];
  }
  out.choices_[i] = static_cast<int8_t>(choice);
  out.levels_[i] = static_cast<int8_t>(choice < 0 ? 0 : inside);
  return out;
}

Division Division::with_choices(const std::vector<int>& choices) const {
  Division out = *this;
  std::array<int, kMaxCuts> order{};
  for (size_t i = 0; i < size_; ++i) {
    out.choices_[i] = static_cast<int8_t>(choices[i]);
    order[i] = levels_[i];
  }
  out.rank(order.data());
  return out;
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

int take_level(std::string* text) {
  const size_t slash = text->rfind('/');
  if (slash == std::string::npos || slash + 1 == text->size() || slash + 3 < text->size() ||
      text->find_first_not_of("0123456789", slash + 1) != std::string::npos) {
    return -1;
  }
  const int level = std::atoi(text->c_str() + slash + 1);
  text->resize(slash);
  return level;
}

std::vector<std::string> tiling_texts(const Tiling& tiling) {
  std::vector<std::string> texts;
  for (size_t i = 0; i < tiling.size(); ++i) {
    texts.push_back(choice_text(tiling[i]));
    if (!tiling.is_usual(i)) texts.back() += "/" + std::to_string(tiling.level(i));
  }
  return texts;
}

Tiling parse_tiling(const std::vector<std::string>& texts, const std::string& what) {
  std::vector<int> choices, order;
  for (size_t i = 0; i < texts.size(); ++i) {
    std::string text = texts[i];
    const int level = take_level(&text);
    choices.push_back(parse_choice(text, what));
    // Where no level is given the last cut divides first.
    order.push_back(level >= 0 ? level : static_cast<int>(1000 - i));
  }
  return Tiling(std::move(choices), order);
}

std::string tiling_text(const Tiling& tiling) {
  std::string text;
  for (const std::string& choice : tiling_texts(tiling)) text += (text.empty() ? "" : ", ") + choice;
  return "(" + text + ")";
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

int64_t overlap(const Range& a, const Range& b) {
  return std::max<int64_t>(0, std::min(a.end, b.end) - std::max(a.begin, b.begin));
}

std::vector<Range> divided(const Mesh& mesh, const std::vector<int>& cuts, int64_t extent) {
  std::vector<Range> ranges{{0, extent}};
  for (const int cut : cuts) {
    std::vector<Range> finer;
    for (const Range& range : ranges) {
      for (int g = 0; g < mesh.parts(cut); ++g) finer.push_back(part_of(range, mesh.parts(cut), g));
    }
    ranges.swap(finer);
  }
  return ranges;
}

Range device_range(const Mesh& mesh, const std::vector<int>& cuts, int64_t extent, int device) {
  Range range{0, extent};
  for (const int cut : cuts) range = part_of(range, mesh.parts(cut), mesh.digit(device, cut));
  return range;
}

Range device_range(const Mesh& mesh, const Division& division, int value, int64_t extent,
                   int device) {
  return device_range(mesh, division.cuts_of(value), extent, device);
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
