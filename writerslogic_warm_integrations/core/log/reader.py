from warm_integrations.core.log.reader import *
