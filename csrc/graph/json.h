// A small JSON value, reader and writer (RFC 8259).
//
// The reader accepts any bytes: malformed text, nesting deeper than
// kMaxDepth and numbers out of range raise Error with the byte offset.
#ifndef SOYBEAN_GRAPH_JSON_H_
#define SOYBEAN_GRAPH_JSON_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace soybean {

class Json {
 public:
  enum class Kind { kNull, kBool, kInt, kReal, kString, kArray, kObject, kWritten };
  using Array = std::vector<Json>;
  using Member = std::pair<std::string, Json>;
  using Object = std::vector<Member>;  // in the order of the text

  static constexpr int kMaxDepth = 200;

  Json() = default;
  Json(bool v) : kind_(Kind::kBool), int_(v) {}                     // NOLINT
  Json(int v) : kind_(Kind::kInt), int_(v) {}                       // NOLINT
  Json(int64_t v) : kind_(Kind::kInt), int_(v) {}                   // NOLINT
  Json(double v) : kind_(Kind::kReal), real_(v) {}                  // NOLINT
  Json(const char* v) : kind_(Kind::kString), string_(v) {}         // NOLINT
  Json(std::string v) : kind_(Kind::kString), string_(std::move(v)) {}  // NOLINT

  static Json array() { return of(Kind::kArray); }
  static Json object() { return of(Kind::kObject); }
  // A value as the text that it is written as, to be written only: a large one takes
  // less room so.
  static Json written(std::string text) {
    Json j = of(Kind::kWritten);
    j.string_ = std::move(text);
    return j;
  }
  static Json parse(const std::string& text);

  Kind kind() const { return kind_; }
  bool is_null() const { return kind_ == Kind::kNull; }
  bool is_string() const { return kind_ == Kind::kString; }
  bool is_array() const { return kind_ == Kind::kArray; }
  bool is_object() const { return kind_ == Kind::kObject; }

  // Typed access; `what` names the value in the message of the Error that a
  // value of another kind raises.
  bool as_bool(const std::string& what) const;
  int64_t as_int(const std::string& what) const;
  double as_real(const std::string& what) const;
  const std::string& as_string(const std::string& what) const;
  const Array& as_array(const std::string& what) const;
  const Object& as_object(const std::string& what) const;

  // The member `key`, or null when this is not an object or has none.
  const Json* find(const std::string& key) const;
  // The member `key`; Error naming `what` when there is none.
  const Json& at(const std::string& key, const std::string& what) const;

  // Building: an array's next element; an object's next member.
  void push(Json value) { array_.push_back(std::move(value)); }
  void set(std::string key, Json value) {
    object_.emplace_back(std::move(key), std::move(value));
  }

  std::string text() const;

 private:
  static Json of(Kind kind) {
    Json j;
    j.kind_ = kind;
    return j;
  }
  void write(std::string* out) const;

  Kind kind_ = Kind::kNull;
  int64_t int_ = 0;
  double real_ = 0;
  std::string string_;
  Array array_;
  Object object_;
};

Json json_array(const std::vector<int64_t>& values);

}  // namespace soybean

#endif  // SOYBEAN_GRAPH_JSON_H_
