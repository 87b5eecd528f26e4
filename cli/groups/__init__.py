"""The groups of commands, which import a command once it is used: what each start imports."""
