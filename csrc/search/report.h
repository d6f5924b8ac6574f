// What a search says about its plan, beside the plan itself (docs/interface.md).
#ifndef SOYBEAN_SEARCH_REPORT_H_
#define SOYBEAN_SEARCH_REPORT_H_

#include "search/search.h"

namespace soybean {

void add_report(const Program& program, const SearchOptions& options, const SearchResult& result,
                Json* plan);

}  // namespace soybean

#endif  // SOYBEAN_SEARCH_REPORT_H_
