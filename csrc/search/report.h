// What a search says about its plan, beside the plan itself (docs/interface.md).
#ifndef SOYBEAN_SEARCH_REPORT_H_
#define SOYBEAN_SEARCH_REPORT_H_

#include "search/search.h"

namespace soybean {

void add_report(const Program& program, const SearchOptions& options, const SearchResult& result,
                Json* plan);

// The search's input, for those who search on their own (tests): the program as it is
// planned, with every choice of every operator, resting tensor and result.
Json space_json(const Program& program, const SearchOptions& options);

}  // namespace soybean

#endif  // SOYBEAN_SEARCH_REPORT_H_
