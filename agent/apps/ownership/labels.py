"""The labels of containers and volumes, which tell whose they are."""

APP_LABEL = "rollcall.app"
AGENT_LABEL = "rollcall.agent"
OPERATION_LABEL = "rollcall.change"
PATH_LABEL = "rollcall.path"
# The label of a container that only serves to read volumes; its value is the app's name.
HELPER_LABEL = "rollcall.reads"
