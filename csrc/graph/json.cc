#include "graph/json.h"

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "graph/graph.h"

namespace soybean {
namespace {

const char* kind_name(Json::Kind kind) {
  switch (kind) {
    case Json::Kind::kNull: return "null";
    case Json::Kind::kBool: return "a boolean";
    case Json::Kind::kInt: return "an integer";
    case Json::Kind::kReal: return "a number";
    case Json::Kind::kString: return "a string";
    case Json::Kind::kArray: return "an array";
    case Json::Kind::kObject: return "an object";
    case Json::Kind::kWritten: return "a written value";
  }
  return "unknown";
}

[[noreturn]] void wrong_kind(const std::string& what, const char* wanted, Json::Kind kind) {
  throw Error(what + " must be " + wanted + ", but is " + kind_name(kind));
}

void append_utf8(uint32_t code, std::string* out) {
  if (code < 0x80) {
    out->push_back(static_cast<char>(code));
  } else if (code < 0x800) {
    out->push_back(static_cast<char>(0xC0 | (code >> 6)));
    out->push_back(static_cast<char>(0x80 | (code & 0x3F)));
  } else if (code < 0x10000) {
    out->push_back(static_cast<char>(0xE0 | (code >> 12)));
    out->push_back(static_cast<char>(0x80 | ((code >> 6) & 0x3F)));
    out->push_back(static_cast<char>(0x80 | (code & 0x3F)));
  } else {
    out->push_back(static_cast<char>(0xF0 | (code >> 18)));
    out->push_back(static_cast<char>(0x80 | ((code >> 12) & 0x3F)));
    out->push_back(static_cast<char>(0x80 | ((code >> 6) & 0x3F)));
    out->push_back(static_cast<char>(0x80 | (code & 0x3F)));
  }
}

class Reader {
 public:
  explicit Reader(const std::string& text) : text_(text) {}

  Json read_document() {
    Json value = read_value(0);
    skip_space();
    if (at_ != text_.size()) fail("text after the end of the document");
    return value;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw Error("malformed JSON at byte " + std::to_string(at_) + ": " + what);
  }

  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  void skip_space() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r')) {
      ++at_;
    }
  }

  void expect(char c) {
    if (peek() != c || at_ >= text_.size()) fail(std::string("expected '") + c + "'");
    ++at_;
  }

  bool accept_word(const char* word) {
    const std::string w(word);
    if (text_.compare(at_, w.size(), w) != 0) return false;
    at_ += w.size();
    return true;
  }

  Json read_value(int depth) {
    if (depth > Json::kMaxDepth) fail("nested too deeply");
    skip_space();
    switch (peek()) {
      case '{': return read_object(depth);
      case '[': return read_array(depth);
      case '"': return Json(read_string());
      case 't': if (accept_word("true")) return Json(true); break;
      case 'f': if (accept_word("false")) return Json(false); break;
      case 'n': if (accept_word("null")) return Json(); break;
      default: return read_number();
    }
    fail("unknown word");
  }

  Json read_object(int depth) {
    Json object = Json::object();
    expect('{');
    skip_space();
    if (peek() == '}') {
      ++at_;
      return object;
    }
    for (;;) {
      skip_space();
      std::string key = read_string();
      skip_space();
      expect(':');
      object.set(std::move(key), read_value(depth + 1));
      skip_space();
      if (peek() != ',') break;
      ++at_;
    }
    expect('}');
    return object;
  }

  Json read_array(int depth) {
    Json array = Json::array();
    expect('[');
    skip_space();
    if (peek() == ']') {
      ++at_;
      return array;
    }
    for (;;) {
      array.push(read_value(depth + 1));
      skip_space();
      if (peek() != ',') break;
      ++at_;
    }
    expect(']');
    return array;
  }

  uint32_t read_hex4() {
    uint32_t code = 0;
    for (int i = 0; i < 4; ++i, ++at_) {
      const char c = peek();
      code <<= 4;
      if (c >= '0' && c <= '9') code |= static_cast<uint32_t>(c - '0');
      else if (c >= 'a' && c <= 'f') code |= static_cast<uint32_t>(c - 'a' + 10);
      else if (c >= 'A' && c <= 'F') code |= static_cast<uint32_t>(c - 'A' + 10);
      else fail("bad \\u escape");
    }
    return code;
  }

  void read_unicode_escape(std::string* out) {
    uint32_t code = read_hex4();
    if (code >= 0xD800 && code < 0xDC00) {
      if (!accept_word("\\u")) fail("lone surrogate");
      const uint32_t low = read_hex4();
      if (low < 0xDC00 || low > 0xDFFF) fail("lone surrogate");
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    } else if (code >= 0xDC00 && code <= 0xDFFF) {
      fail("lone surrogate");
    }
    append_utf8(code, out);
  }

  std::string read_string() {
    expect('"');
    std::string out;
    for (;;) {
      if (at_ >= text_.size()) fail("unterminated string");
      const char c = text_[at_++];
      if (c == '"') return out;
      if (static_cast<unsigned char>(c) < 0x20) fail("control character in a string");
      if (c != '\\') {
        out.push_back(c);
        continue;
      }
      const char escape = peek();
      ++at_;
      switch (escape) {
        case '"': case '\\': case '/': out.push_back(escape); break;
        case 'b': out.push_back('\b'); break;
        case 'f': out.push_back('\f'); break;
        case 'n': out.push_back('\n'); break;
        case 'r': out.push_back('\r'); break;
        case 't': out.push_back('\t'); break;
        case 'u': read_unicode_escape(&out); break;
        default: fail("unknown escape");
      }
    }
  }

  Json read_number() {
    const size_t begin = at_;
    bool integral = true;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '.' || c == 'e' || c == 'E') integral = false;
      else if (!((c >= '0' && c <= '9') || c == '-' || c == '+')) break;
      ++at_;
    }
    const std::string digits = text_.substr(begin, at_ - begin);
    if (digits.empty()) fail("expected a value");
    errno = 0;
    char* end = nullptr;
    if (integral) {
      const long long value = std::strtoll(digits.c_str(), &end, 10);
      if (errno != 0 || *end != '\0') fail("bad number '" + digits + "'");
      return Json(static_cast<int64_t>(value));
    }
    const double value = std::strtod(digits.c_str(), &end);
    if (*end != '\0' || !std::isfinite(value)) fail("bad number '" + digits + "'");
    return Json(value);
  }

  const std::string& text_;
  size_t at_ = 0;
};

void write_string(const std::string& s, std::string* out) {
  out->push_back('"');
  for (const char c : s) {
    switch (c) {
      case '"': *out += "\\\""; break;
      case '\\': *out += "\\\\"; break;
      case '\n': *out += "\\n"; break;
      case '\r': *out += "\\r"; break;
      case '\t': *out += "\\t"; break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          char buffer[8];
          std::snprintf(buffer, sizeof(buffer), "\\u%04x", c);
          *out += buffer;
        } else {
          out->push_back(c);
        }
    }
  }
  out->push_back('"');
}

}  // namespace

Json Json::parse(const std::string& text) { return Reader(text).read_document(); }

bool Json::as_bool(const std::string& what) const {
  if (kind_ != Kind::kBool) wrong_kind(what, "a boolean", kind_);
  return int_ != 0;
}

int64_t Json::as_int(const std::string& what) const {
  if (kind_ != Kind::kInt) wrong_kind(what, "an integer", kind_);
  return int_;
}

double Json::as_real(const std::string& what) const {
  if (kind_ == Kind::kInt) return static_cast<double>(int_);
  if (kind_ != Kind::kReal) wrong_kind(what, "a number", kind_);
  return real_;
}

const std::string& Json::as_string(const std::string& what) const {
  if (kind_ != Kind::kString) wrong_kind(what, "a string", kind_);
  return string_;
}

const Json::Array& Json::as_array(const std::string& what) const {
  if (kind_ != Kind::kArray) wrong_kind(what, "an array", kind_);
  return array_;
}

const Json::Object& Json::as_object(const std::string& what) const {
  if (kind_ != Kind::kObject) wrong_kind(what, "an object", kind_);
  return object_;
}

const Json* Json::find(const std::string& key) const {
  for (const Member& member : object_) {
    if (member.first == key) return &member.second;
  }
  return nullptr;
}

const Json& Json::at(const std::string& key, const std::string& what) const {
  if (kind_ != Kind::kObject) wrong_kind(what, "an object", kind_);
  const Json* value = find(key);
  if (value == nullptr) throw Error(what + " has no member \"" + key + "\"");
  return *value;
}

void Json::write(std::string* out) const {
  switch (kind_) {
    case Kind::kNull: *out += "null"; break;
    case Kind::kBool: *out += int_ != 0 ? "true" : "false"; break;
    case Kind::kInt: *out += std::to_string(int_); break;
    case Kind::kReal: {
      char buffer[32];
      std::snprintf(buffer, sizeof(buffer), "%.17g", real_);
      *out += buffer;
      break;
    }
    case Kind::kString: write_string(string_, out); break;
    case Kind::kWritten: *out += string_; break;
    case Kind::kArray: {
      out->push_back('[');
      for (size_t i = 0; i < array_.size(); ++i) {
        if (i > 0) *out += ", ";
        array_[i].write(out);
      }
      out->push_back(']');
      break;
    }
    case Kind::kObject: {
      out->push_back('{');
      for (size_t i = 0; i < object_.size(); ++i) {
        if (i > 0) *out += ", ";
        write_string(object_[i].first, out);
        *out += ": ";
        object_[i].second.write(out);
      }
      out->push_back('}');
      break;
    }
  }
}

std::string Json::text() const {
  std::string out;
  write(&out);
  return out;
}

Json json_array(const std::vector<int64_t>& values) {
  Json out = Json::array();
  for (const int64_t v : values) out.push(Json(v));
  return out;
}

}  // namespace soybean
