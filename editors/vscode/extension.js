// Starts `parlay lsp` and connects the editor to it.
"use strict";

const vscode = require("vscode");
const { LanguageClient, TransportKind } = require("vscode-languageclient/node");

let client;

function start() {
  const settings = vscode.workspace.getConfiguration("parlay");
  const server = {
    command: settings.get("path", "parlay"),
    args: ["lsp"],
    transport: TransportKind.stdio,
  };
  client = new LanguageClient("parlay", "Parlay", server, {
    documentSelector: [{ language: "par" }],
    initializationOptions: { targets: settings.get("targets", []) },
    synchronize: { fileEvents: vscode.workspace.createFileSystemWatcher("**/*.{par,json}") },
  });
  return client.start();
}

async function restart() {
  await client?.stop();
  await start();
}

async function activate(context) {
  context.subscriptions.push(
    vscode.commands.registerCommand("parlay.restart", restart),
    vscode.workspace.onDidChangeConfiguration((event) =>
      event.affectsConfiguration("parlay") ? restart() : undefined,
    ),
  );
  await start();
}

function deactivate() {
  return client?.stop();
}

module.exports = { activate, deactivate };
