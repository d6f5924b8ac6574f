// What the core's tests are written with: CHECK and CHECK_THROWS report a
// failure with its place and go on; finish() is what main returns.
#ifndef SOYBEAN_TESTS_CHECK_H_
#define SOYBEAN_TESTS_CHECK_H_

#include <cstdio>
#include <string>

#include "graph/graph.h"

namespace soybean_tests {

struct Counts {
  int checks = 0;
  int failures = 0;
};

inline Counts& counts() {
  static Counts instance;
  return instance;
}

inline void check(bool holds, const char* file, int line, const std::string& text) {
  ++counts().checks;
  if (holds) return;
  ++counts().failures;
  std::fprintf(stderr, "%s:%d: failed: %s\n", file, line, text.c_str());
}

inline int finish(const char* name) {
  std::printf("%s: %d checks, %d failures\n", name, counts().checks, counts().failures);
  return counts().failures == 0 ? 0 : 1;
}

// The message of the Error that `action` throws; empty when it throws none.
template <typename Action>
std::string error_of(Action action) {
  try {
    action();
  } catch (const soybean::Error& error) {
    return error.what();
  }
  return "";
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace soybean_tests

#define CHECK(condition) \
  soybean_tests::check(static_cast<bool>(condition), __FILE__, __LINE__, #condition)

// `expression` throws soybean::Error, and its message contains `part`.
#define CHECK_THROWS(expression, part)                                                     \
  do {                                                                                     \
    const std::string message = soybean_tests::error_of([&] { (void)(expression); });      \
    soybean_tests::check(!message.empty() && soybean_tests::contains(message, part),       \
                         __FILE__, __LINE__, #expression " says \"" + message + "\"");     \
  } while (false)

#endif  // SOYBEAN_TESTS_CHECK_H_
