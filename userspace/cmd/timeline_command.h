// `stockade timeline`: one session as one story, from its events.
#pragma once

namespace CLI {
class App;
}

namespace stockade::cmd {

void AddTimelineCommand(CLI::App& app, int& exit_code);

}  // namespace stockade::cmd
