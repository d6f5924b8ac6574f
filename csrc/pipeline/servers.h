// The devices that stages are placed on, numbered server by server.
#ifndef SOYBEAN_PIPELINE_SERVERS_H_
#define SOYBEAN_PIPELINE_SERVERS_H_

#include <cstdint>
#include <vector>

#include "graph/json.h"

namespace soybean {

// The devices and the levels of links between them, from the outermost. A level
// divides each part of the level around it into parts; the parts of the last level
// are single devices.
class Servers {
 public:
  // [{"groups": 4 or [2, 6] or null, "bandwidth": bytes/s}], the outermost first; a list
  // of groups gives the devices of each, the level within then has none. Throws Error.
  static Servers read(const Json& levels);
  Servers(std::vector<std::vector<int>> parts, std::vector<int> groups, std::vector<double> bandwidths);

  int devices() const { return devices_; }
  int levels() const { return static_cast<int>(bandwidths_.size()); }
  double bandwidth(int level) const { return bandwidths_[static_cast<size_t>(level)]; }
  double slowest() const;
  // Between devices that this level is the outermost between: what crosses it also goes
  // over the links within.
  double rate_across(int level) const;
  // Into how many equal groups a level divides each part of the level around it; 0 where
  // they are unequal.
  int groups(int level) const { return groups_[static_cast<size_t>(level)]; }

  // The outermost level whose links lie between two devices; levels() for one device.
  int between(int first, int last) const;
  // The seconds for each byte of weights that `count` devices from `first` take to add up
  // their gradients: at each level a ring of the parts that take part, 4 (g - 1) / (g B).
  double exchange_seconds_per_byte(int first, int count) const;

 private:
  std::vector<std::vector<int>> parts_;  // by level and device, counted over all devices
  std::vector<int> groups_;
  std::vector<double> bandwidths_;
  int devices_ = 0;
};

}  // namespace soybean

#endif  // SOYBEAN_PIPELINE_SERVERS_H_
