// The JSON reader: what it reads, writes back, and refuses.
#include "graph/json.h"

#include "tests/check.h"

using soybean::Json;

namespace {

void reads_and_writes_back() {
  const std::string text = R"({"a": [1, -2, [], {}], "b": "x\"\\y", "c": true, "d": null})";
  const Json value = Json::parse(text);
  CHECK(value.at("a", "it").as_array("a").size() == 4);
  CHECK(value.at("a", "it").as_array("a")[1].as_int("it") == -2);
  CHECK(value.at("b", "it").as_string("b") == "x\"\\y");
  CHECK(value.at("c", "it").as_bool("c"));
  CHECK(value.find("d")->is_null());
  CHECK(value.find("e") == nullptr);
  CHECK(Json::parse(value.text()).text() == value.text());
}

void reads_strings_of_any_text() {
  CHECK(Json::parse(R"("\u00e9\t\/\ud83d\ude00")").as_string("it") == "\xc3\xa9\t/\xf0\x9f\x98\x80");
  const std::string controls("\x01\n\r\t\"\\\x7f", 7);
  CHECK(Json::parse(Json(controls).text()).as_string("it") == controls);
}

void reads_numbers() {
  CHECK(Json::parse("9223372036854775807").as_int("it") == INT64_MAX);
  CHECK(Json::parse("-9223372036854775808").as_int("it") == INT64_MIN);
  CHECK(Json::parse("2.5e1").as_real("it") == 25.0);
  CHECK_THROWS(Json::parse("\"1\"").as_int("the count"), "the count");
}

void refuses_malformed_text() {
  for (const char* text : {"", " ", "{", "}", "[", "]", "[1,", "[1 2]", "{\"a\"}", "{\"a\":}", "{1: 2}",
                           "\"", "\"\\", "\"\\u12", "\"\\x\"", "tru", "nul", "-", "1 2", "[1]]",
                           "{\"a\": 1,}", "[,]", "\"\\ud83d\"x"}) {
    CHECK(!soybean_tests::error_of([&] { Json::parse(text); }).empty());
  }
}

void refuses_deep_nesting() {
  for (const char open : {'[', '{'}) {
    std::string text;
    for (int i = 0; i < 1000000; ++i) text += open == '[' ? "[" : "{\"a\":";
    CHECK(!soybean_tests::error_of([&] { Json::parse(text); }).empty());
  }
}

}  // namespace

int main() {
  reads_and_writes_back();
  reads_strings_of_any_text();
  reads_numbers();
  refuses_malformed_text();
  refuses_deep_nesting();
  return soybean_tests::finish("json_test");
}
